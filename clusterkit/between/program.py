"""The program that a host runs for the proof: sent over the stream, run from memory.

Nothing of it is ever written to the host's disk, so nothing can stay there, however the connection ends.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from importlib import resources
from textwrap import dedent

from clusterkit.probes.disk import shell_path

# In this order: each needs only those before it.
_MODULES = ("kernel", "answering", "connecting", "datagrams", "streaming", "commands")

# Read by Python 3.6 and newer. File descriptor 0 is read directly: a buffered reader would take bytes that
# belong to the conversation.
_RECEIVE = dedent(
    """
    import os, sys
    if sys.version_info < (3, 6):
        sys.exit("Python 3.6 or newer is needed, this is " + sys.version.split()[0])
    import json, types
    size, data = int(sys.argv[1]), b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit("the connection ended before the program had arrived")
        data += piece
    package = sys.modules["clusterkit_reach"] = types.ModuleType("clusterkit_reach")
    package.__path__ = []
    for name, source in json.loads(data.decode("utf-8")):
        module = types.ModuleType("clusterkit_reach." + name)
        module.__package__ = "clusterkit_reach"
        sys.modules[module.__name__] = module
        setattr(package, name, module)
        exec(compile(source, "<clusterkit reach." + name + ">", "exec"), module.__dict__)
    sys.exit(package.commands.main())
    """
).strip()


def build() -> bytes:
    """The program's modules, as JSON."""
    folder = resources.files("clusterkit").joinpath("node").joinpath("reach")
    sources = [[name, folder.joinpath(f"{name}.py").read_text(encoding="utf-8")] for name in _MODULES]
    return json.dumps(sources).encode()


def script(python: str, size: int) -> str:
    """A shell script that takes `size` bytes from stdin and becomes the program, by the host's `python`."""
    word = shell_path(python)
    missing = f'echo "there is no "{word} >&2; exit 127'
    return f"command -v {word} >/dev/null 2>&1 || {{ {missing}; }}\nexec {word} {_arguments(size)}\n"


def script_in_image(runtime: Sequence[str], image: str, size: int) -> str:
    """The same by the `python3` of the training image, for a host that has none of its own."""
    options = ["run", "--rm", "-i", "--network", "host", "--entrypoint", "python3", image]
    return f"exec {shlex.join([*runtime, *options])} {_arguments(size)}\n"


def _arguments(size: int) -> str:
    # Isolated, without site, and without compiled files that it would leave behind.
    return f"-I -S -B -c {shlex.quote(_RECEIVE)} {size}"
