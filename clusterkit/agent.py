"""The agent that travels to every host: `clusterkit/node/` as one file that `python3` runs."""

from __future__ import annotations

import io
import shlex
import zipfile
from importlib import resources

# A fixed date: the same source gives the same bytes, wherever and whenever it is packed.
_DATE = (1980, 1, 1, 0, 0, 0)
_PACKAGE = "clusterkit_node"
_ENTRY = f"import sys\n\nfrom {_PACKAGE}.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"

# Reads exactly the agent from stdin, byte by byte where it must: what follows belongs to `stage`.
_RECEIVE = """\
import os, sys
path, missing = os.path.expanduser(sys.argv[1]), int(sys.argv[2])
os.umask(0o077)
os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
with open(path + '.part', 'wb') as file:
    while missing:
        data = os.read(0, missing)
        if not data:
            sys.exit('the connection ended before the agent was here')
        file.write(data)
        missing -= len(data)
os.rename(path + '.part', path)
os.execv(sys.executable, [sys.executable, '-I', path, 'stage'])
"""


def build() -> bytes:
    """`agent.pyz`: a zip file with `__main__.py`. The same source gives the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _ENTRY.encode())
        sources = resources.files("clusterkit").joinpath("node")
        for source in sorted(sources.iterdir(), key=lambda entry: entry.name):
            if source.name.endswith(".py"):
                _add(archive, f"{_PACKAGE}/{source.name}", source.read_bytes())
    return packed.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    archive.writestr(entry, data)


def stage_script(python: str, run_dir: str, size: int) -> str:
    """A shell script that is `agent.pyz stage` once it has taken `size` bytes of stdin as RUN_DIR/agent.pyz.

    The controller sends `build()`, then speaks the protocol of staging. `~` in `run_dir` is the home
    on the host.
    """
    words = [python, "-I", "-c", _RECEIVE, f"{run_dir}/agent.pyz", str(size)]
    return f"exec {shlex.join(words)}\n"


def script(python: str, run_dir: str, command: str, *arguments: str) -> str:
    """A shell script that becomes `agent.pyz COMMAND RUN_DIR ARGUMENTS`; `run_dir` is absolute."""
    words = [python, "-I", f"{run_dir}/agent.pyz", command, run_dir, *arguments]
    return f"exec {shlex.join(words)}\n"
