"""Processes that compute on the GPUs now."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clusterkit.facts import NOT_FOUND, Output, Probe


@dataclass(frozen=True)
class GpuProcess:
    """A process on one GPU; memory in MiB, None where the driver does not say."""

    pid: int
    uuid: str
    user: str
    command: str
    memory: int | None


# The driver says how a process was started at best; `ps` says whose it is, and all of its command line.
_SHELL = r"""
found=$(nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory,process_name --format=csv,noheader,nounits)
status=$?
echo "$found"
[ -n "$found" ] || exit "$status"
pids=$(echo "$found" | sed -n 's/^\([0-9][0-9]*\),.*/\1/p' | tr '\n' ' ')
for pid in $pids; do
    LC_ALL=C ps -o pid= -o user= -o args= -p "$pid" 2>/dev/null | sed 's/^ */process /'
done
exit "$status"
"""

_APP = re.compile(r"^(\d+), *([^,]+), *([^,]+), *(.*)$", re.MULTILINE)
_PROCESS = re.compile(r"^process (\d+) +(\S+) +(.*)$", re.MULTILINE)
NO_DEVICES = 6  # what nvidia-smi ends with when it found none


def _parse(output: Output) -> tuple[GpuProcess, ...]:
    known = {int(pid): (user, command) for pid, user, command in _PROCESS.findall(output.stdout)}
    found = []
    for pid, uuid, memory, name in _APP.findall(output.stdout):
        user, command = known.get(int(pid), ("", name.strip()))
        amount = int(memory) if memory.strip().isdigit() else None
        found.append(GpuProcess(int(pid), uuid.strip(), user, command.strip(), amount))
    return tuple(found)


GPU_PROCESSES = Probe(
    "gpu_processes",
    _SHELL,
    _parse,
    timeout=20,
    accepts=(0, NO_DEVICES, NOT_FOUND),
    about="processes on the GPUs",
)
