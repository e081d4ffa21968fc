"""A fingerprint of the data set at `data_path`: how many files and bytes, and a sample of what is in them."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import Settings
from clusterkit.probes.disk import shell_path
from clusterkit.probes.python import host_python
from clusterkit.probes.storage.asking import CHILDREN

# A server answers some thousand questions for sizes in a second. All names are counted, sizes and contents of
# so many files are looked at, at equal distances in the order of their names.
SIZED = 20_000
READ = 16
READ_BYTES = 65_536
LIMIT_S = 20


@dataclass(frozen=True)
class DataSet:
    """What is there. `bytes` are those of `sized` files. `problem` says why nothing is known.

    `digest` is over all names, the sizes that were asked for, and the beginnings and ends of some files.
    """

    files: int = 0
    bytes: int = 0
    sized: int = 0
    digest: str = ""
    unreadable: int = 0
    problem: str = ""


# 3.6 and newer. Links are compared by what they point to, and not followed.
_PROGRAM = r"""
import hashlib, json, os, sys
root, sized, read, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
def tell(**said):
    print(json.dumps(said))
    sys.exit(0)
if not os.path.lexists(root):
    tell(problem="does not exist")
names, unreadable, folders = [], 0, [""]
if not os.path.isdir(root):
    names, folders = [""], []
while folders:
    folder = folders.pop()
    try:
        found = sorted(os.scandir(os.path.join(root, folder)), key=lambda entry: entry.name)
    except OSError as error:
        if not folder:
            tell(problem="cannot be read: " + os.strerror(error.errno))
        unreadable += 1
        continue
    for entry in found:
        # What we, and a client of NFS, put there for a moment.
        if entry.name.startswith((".clusterkit-", ".nfs")):
            continue
        name = os.path.join(folder, entry.name)
        if entry.is_dir(follow_symlinks=False):
            folders.append(name)
        else:
            names.append(name)
names.sort()
digest, total = hashlib.sha256(), 0
for name in names:
    digest.update(os.fsencode(name) + b"\0")
def spread(count):
    count = min(count, len(names))
    return [names[index * len(names) // count] for index in range(count)]
for name in spread(sized):
    path = os.path.join(root, name) if name else root
    try:
        bytes_there = os.lstat(path).st_size
        if os.path.islink(path):
            digest.update(os.fsencode(os.readlink(path)))
    except OSError:
        unreadable += 1
        continue
    total += bytes_there
    digest.update(b"%d\0" % bytes_there)
for name in spread(read):
    path = os.path.join(root, name) if name else root
    if not os.path.isfile(path):
        continue
    try:
        with open(path, "rb") as data:
            digest.update(data.read(size))
            data.seek(max(0, os.fstat(data.fileno()).st_size - size))
            digest.update(data.read(size))
    except OSError:
        unreadable += 1
sized = min(sized, len(names))
tell(files=len(names), bytes=total, sized=sized, digest=digest.hexdigest(), unreadable=unreadable)
"""


def _shell(settings: Settings) -> str:
    if settings.data_path is None:
        return ""
    arguments = ["-I", "-c", _PROGRAM, settings.data_path, SIZED, READ, READ_BYTES]
    call = shlex.join(map(str, arguments))
    lines = [
        CHILDREN,
        # Not by Python itself: nothing ends a program that waits for a dead server.
        f"begin answers stoppable stat -f {shlex.quote(settings.data_path)}",
        "collect",
        'if ! grep -qs \'^done$\' "$now/answers" || grep -qs Killed "$now/answers.error"; then',
        "    echo 'its file system does not answer' >&2; exit 75",
        "fi",
        f"python={shell_path(host_python(settings))}",
        'command -v "$python" >/dev/null 2>&1 || python=python3',
        f'"$python" {call}',
    ]
    return "\n".join(lines)


def _parse(output: Output) -> DataSet | None:
    return DataSet(**json.loads(output.stdout)) if output.stdout.strip() else None


# None where no `data_path` is declared.
DATA = Probe("data", _shell, _parse, timeout=LIMIT_S, about="the data set")
