"""Whether the Paddle of the host or of its image was built with its parameter servers, without importing it.

The wheels of 3.x start servers and trainers, and fail in every trainer at `fleet.init_worker()`. What they
lack are classes of the compiled core; the name of one of them stands in it, or does not.
"""

from __future__ import annotations

import shlex

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import Settings
from clusterkit.probes.container.calling import calling, is_used
from clusterkit.probes.disk import shell_path

# Runs under whatever `python` is there (3.6 and newer).
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


# In a container of the image: the interpreters are asked in the order in which a launch tries them.
_IN_IMAGE = r"""
$as "$client" image inspect --format '{{.Id}}' "$image" >/dev/null 2>&1 || { echo none; exit 0; }
timeout -k 5 50 $as "$client" run --rm --pull=never --network none --label clusterkit.probe=1 \
    --entrypoint sh "$@" </dev/null
"""
_CHOOSE = r"""
program=$1; shift
for python in "$@"; do
    command -v "$python" >/dev/null 2>&1 || continue
    said=$("$python" -c "$program") || continue
    [ "$said" = none ] || { echo "$said"; exit 0; }
done
echo none
"""


def _shell(settings: Settings) -> str:
    if not is_used(settings):
        return f'python={shell_path(settings.python)}\nexec "$python" {shlex.join(["-c", _PROGRAM])}\n'
    pythons = dict.fromkeys((settings.python, "python3", "python"))
    words = shlex.join([str(settings.image), "-c", _CHOOSE, "sh", _PROGRAM, *pythons])
    return f"{calling(settings)}\nset -- {words}\n{_IN_IMAGE}"


def _parse(output: Output) -> bool | None:
    """None where no compiled core was found, or no container that could be asked."""
    said = output.stdout.strip().splitlines()
    return {"yes": True, "no": False}.get(said[-1] if said else "")


# The core has hundreds of megabytes, which may come over NFS.
SERVER_CORE = Probe("server_core", _shell, _parse, timeout=60, about="Paddle's parameter servers")
