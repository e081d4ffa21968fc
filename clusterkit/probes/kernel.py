"""What the kernel and the login's limits give: ports, CPUs, memory, open files, shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import PortRange


@dataclass(frozen=True)
class KernelFacts:
    """Bytes, and numbers of things; None is "unlimited" for a limit and "not known" for a size."""

    ephemeral: PortRange
    reserved: tuple[PortRange, ...]
    first_unprivileged_port: int
    cpus: int
    memory: int | None
    memory_available: int | None
    open_files: int | None
    open_files_hard: int | None
    locked_memory: int | None
    shm_size: int | None
    shm_free: int | None


# `grep`, because a shell's `read` takes byte after byte, and settings answer only the first read. A setting
# is numbers, or nothing; of all that is in meminfo two lines are wanted.
_SHELL = r"""
cd /proc/sys/net/ipv4 2>/dev/null || :
grep -s -E '^(Mem(Total|Available):|[^A-Za-z]*$)' \
    ip_local_port_range ip_local_reserved_ports ip_unprivileged_port_start /proc/meminfo |
while IFS=: read -r file line; do
    case $file in
        ip_local_port_range) echo "ephemeral=$line" ;;
        ip_local_reserved_ports) echo "reserved=$line" ;;
        ip_unprivileged_port_start) echo "unprivileged=$line" ;;
        *) line=${line% kB}; echo "${line%%:*}=${line##* }" ;;
    esac
done
echo "cpus=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)"
echo "open_files=$(ulimit -Sn)"
echo "open_files_hard=$(ulimit -Hn)"
echo "locked_memory=$(ulimit -Sl 2>/dev/null)"
LC_ALL=C df -Pk /dev/shm 2>/dev/null | while read -r system size used free rest; do
    case $size in *[!0-9]*) ;; *) echo "shm_size=$size"; echo "shm_free=$free" ;; esac
done
exit 0
"""


def _parse(output: Output) -> KernelFacts:
    found = output.pairs()
    first, last = found.get("ephemeral", "32768 60999").split()
    return KernelFacts(
        ephemeral=PortRange(int(first), int(last)),
        reserved=tuple(_ranges(found.get("reserved", ""))),
        first_unprivileged_port=int(found.get("unprivileged", "1024")),
        cpus=int(found["cpus"]),
        memory=_kilobytes(found.get("MemTotal")),
        memory_available=_kilobytes(found.get("MemAvailable")),
        open_files=_limit(found["open_files"]),
        open_files_hard=_limit(found["open_files_hard"]),
        locked_memory=_kilobytes(found["locked_memory"]),
        shm_size=_kilobytes(found.get("shm_size")),
        shm_free=_kilobytes(found.get("shm_free")),
    )


def _ranges(text: str) -> Iterator[PortRange]:
    for part in text.split(",") if text.strip() else ():
        first, _, last = part.strip().partition("-")
        yield PortRange(int(first), int(last or first))


def _limit(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _kilobytes(text: str | None) -> int | None:
    return int(text) * 1024 if text and text.isdigit() else None


KERNEL = Probe("kernel", _SHELL, _parse, about="kernel settings")
