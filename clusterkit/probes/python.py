"""The host's own interpreter: its version, its Paddle, and what only a program can try."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import Settings
from clusterkit.probes.disk import shell_path
from clusterkit.probes.paddle import FIND_PADDLE, Paddle, paddle_of


@dataclass(frozen=True)
class PythonFacts:
    """`path` is what the host's PATH makes of the inventory's `python`, links kept (a venv needs them).

    For a job in a container `python` is about the image, and the host's own `python3` runs our agent.

    `libgomp` is None where ctypes cannot be used. `binds` has each IPv4 address of the host, with "" where a
    socket could be bound to it, and otherwise the reason.
    """

    path: str
    version: tuple[int, int, int]
    paddle: Paddle | None
    libgomp: bool | None
    binds: Mapping[str, str]


# Runs on the host under whatever `python` is there (3.6 and newer): no new syntax.
REFUSE_OLD = r"""
import sys
if sys.version_info < (3, 6):
    sys.stdout.write("version=%d.%d.%d\n" % sys.version_info[:3])
    sys.exit(0)
"""
_ASK = r"""
import _socket as socket  # what `socket` is made of, and `ctypes`: those two take longer than all the rest
try:
    from _ctypes import dlopen
    try:
        dlopen("libgomp.so.1", 0)
        libgomp = True
    except OSError:
        libgomp = False
except ImportError:
    libgomp = None
ips = []
try:
    with open("/proc/net/fib_trie") as text:
        for line in text:
            words = line.split()
            if words[0] == "|--":
                ip = words[1]
            elif words[:3] == ["/32", "host", "LOCAL"]:
                ips.append(ip)
except IOError:
    pass
binds = {}
for ip in sorted(set(ips + sys.argv[1:]))[:256]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((ip, 0))
        binds[ip] = ""
    except OSError as error:
        binds[ip] = os.strerror(error.errno) if error.errno else str(error)
    listener.close()
version = list(sys.version_info[:3])
print(repr({"version": version, "paddle": paddle, "libgomp": libgomp, "binds": binds}))
"""
_PROGRAM = REFUSE_OLD + FIND_PADDLE + _ASK

_SHELL = r"""
path=$(command -v "$python") || { echo "$python: not found" >&2; exit 127; }
case $path in /*) ;; *) path=$PWD/$path ;; esac
echo "$path"
"""


def host_python(settings: Settings) -> str:
    """The interpreter that the host itself needs."""
    return settings.python if settings.container_runtime == "none" else "python3"


def _shell(settings: Settings) -> str:
    wanted = [settings.node_ip] if settings.node_ip else []
    call = shlex.join(["-c", _PROGRAM, *wanted])
    return f'python={shell_path(host_python(settings))}\n{_SHELL}exec "$path" {call}\n'


def _parse(output: Output) -> PythonFacts:
    path, answer = output.stdout.split("\n", 1)
    if answer.startswith("version="):
        major, minor, micro = map(int, answer.strip()[len("version=") :].split("."))
        return PythonFacts(path, (major, minor, micro), None, None, {})
    said = ast.literal_eval(answer.strip().splitlines()[-1])
    major, minor, micro = said["version"]
    paddle = paddle_of(said["paddle"])
    return PythonFacts(path, (major, minor, micro), paddle, said["libgomp"], said["binds"])


# An environment on NFS that nobody has read yet takes its time.
PYTHON = Probe("python", _shell, _parse, timeout=20, about="the interpreter")
