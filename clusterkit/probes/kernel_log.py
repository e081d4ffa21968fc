"""What a host's kernel logged in a span of time: out-of-memory kills, GPU errors, file servers that went."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clusterkit.facts import NEEDS_ROOT, Output, Probe


@dataclass(frozen=True)
class KernelLine:
    """One line of the kernel log, and when by the host's clock (Unix seconds)."""

    at: float
    text: str


# The journal knows the time of a line; the kernel's ring counts from the boot, and may be some seconds off
# after months. Many hosts let a login read neither. A flood is cut to its last lines.
_SHELL = rf"""
PATH=$PATH:/usr/sbin:/sbin
dmesg >/dev/null 2>&1 || journalctl -k -b -n 1 -q --no-pager 2>/dev/null | grep -q . || exit {NEEDS_ROOT}
read -r up rest </proc/uptime || exit 1
echo "now $(date +%s) $up"
last() {{ tail -n 2000 | cut -c 1-400 | grep .; }}
journalctl -k -b -q --no-pager -o short-unix --since @SINCE --until @UNTIL 2>/dev/null | last ||
    dmesg 2>/dev/null | awk -v now="$(date +%s)" -v up="$up" '
        match($0, /^(<[0-9]+>)?\[ *[0-9]+\.[0-9]+\]/) {{
            at = $0; sub(/^(<[0-9]+>)?\[ */, "", at); at = now - up + at
            if (at >= SINCE && at <= UNTIL) print
        }}' | last
exit 0
"""

_JOURNAL = re.compile(r"(\d{9,}\.\d+) \S+ kernel: (.*)")
_RING = re.compile(r"(?:<\d+>)?\[ *(\d+\.\d+)\] (.*)")
_NOW = re.compile(r"now (\d+) (\d+(?:\.\d+)?)")


def kernel_log(since: float, until: float) -> Probe[tuple[KernelLine, ...]]:
    """The probe for the lines from `since` to `until` (Unix seconds by the host's clock)."""
    shell = _SHELL.replace("SINCE", str(int(since))).replace("UNTIL", str(int(until) + 1))
    return Probe("kernel_log", shell, _parse, timeout=10, about="the kernel log", root=True, or_login=True)


def _parse(output: Output) -> tuple[KernelLine, ...]:
    now = _NOW.search(output.stdout)
    if not now:
        raise ValueError("no time")
    boot = float(now[1]) - float(now[2])
    found = []
    for line in output.stdout.splitlines():
        if match := _JOURNAL.match(line):
            found.append(KernelLine(float(match[1]), match[2]))
        elif match := _RING.match(line):
            found.append(KernelLine(boot + float(match[1]), match[2]))
    return tuple(found)
