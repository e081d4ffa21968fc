"""Whether the interpreter's Paddle was built with its parameter servers, without importing it.

The wheels of 3.x start servers and trainers, and fail in every trainer at `fleet.init_worker()`. What they
lack are classes of the compiled core; the name of one of them stands in it, or does not.
"""

from __future__ import annotations

import shlex

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import Settings
from clusterkit.probes.disk import shell_path

# Runs on the host under whatever `python` is there (3.6 and newer).
_PROGRAM = r"""
import mmap, os, sys
names = ("base/libpaddle.so", "fluid/libpaddle.so", "fluid/core_avx.so")
places = [os.path.join(folder or ".", "paddle", name) for folder in sys.path for name in names]
found = [place for place in places if os.path.exists(place)]
if not found:
    print("none")
else:
    with open(found[0], "rb") as core, mmap.mmap(core.fileno(), 0, access=mmap.ACCESS_READ) as text:
        print("yes" if text.find(b"DistFleetWrapper") >= 0 else "no")
"""


def _shell(settings: Settings) -> str:
    return f'python={shell_path(settings.python)}\nexec "$python" {shlex.join(["-c", _PROGRAM])}\n'


def _parse(output: Output) -> bool | None:
    """None where no compiled core was found."""
    return {"yes": True, "no": False}.get(output.stdout.strip().splitlines()[-1])


# The core has hundreds of megabytes, which may come over NFS.
SERVER_CORE = Probe("server_core", _shell, _parse, timeout=60, about="Paddle's parameter servers")
