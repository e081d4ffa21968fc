"""What the NVIDIA driver has written into the kernel log since the host was booted."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clusterkit.facts import NEEDS_ROOT, Output, Probe
from clusterkit.probes.gpu_report import bus


@dataclass(frozen=True)
class GpuError:
    """An error number of one device: how often, and the driver's words of the last time.

    `switch` says that it comes from an NVSwitch (SXid), whose `fatal` ones end every job on the host.
    """

    code: int
    bus: str
    count: int
    text: str
    switch: bool = False
    fatal: bool = False


# Where there is no driver it has said nothing, and the log of a whole boot need not be read.
# The journal reaches back to the boot; the kernel's own ring may have forgotten. Many hosts let a login read
# neither. A flood of one error is cut to its last lines.
_SHELL = rf"""
PATH=$PATH:/usr/sbin:/sbin
[ -e /proc/driver/nvidia ] || command -v nvidia-smi >/dev/null 2>&1 || exit 0
dmesg >/dev/null 2>&1 || journalctl -k -b -n 1 -q --no-pager 2>/dev/null | grep -q . || exit {NEEDS_ROOT}
errors() {{ grep -E ' S?Xid ' | tail -n 2000 | cut -c 1-300 | grep .; }}
journalctl -k -b -q --no-pager -o cat 2>/dev/null | errors || dmesg 2>/dev/null | errors
exit 0
"""

_ERROR = re.compile(r"(S?)Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+),? *(.*)")


def _parse(output: Output) -> tuple[GpuError, ...]:
    found: dict[tuple[str, str, int], GpuError] = {}
    for line in output.stdout.splitlines():
        match = _ERROR.search(line)
        if not match:
            continue
        switch, where, code, text = match.groups()
        before = found.get((switch, bus(where), int(code)))
        fatal = bool(switch) and re.match(r"Fatal", text) is not None
        found[switch, bus(where), int(code)] = GpuError(
            code=int(code),
            bus=bus(where),
            count=before.count + 1 if before else 1,
            text=text.strip(),
            switch=bool(switch),
            fatal=fatal or bool(before and before.fatal),
        )
    return tuple(found.values())


# The login user may read it on some systems.
GPU_ERRORS = Probe("gpu_errors", _SHELL, _parse, timeout=10, about="the kernel log", root=True, or_login=True)
