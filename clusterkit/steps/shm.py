"""Shared memory for the data loaders' workers."""

from __future__ import annotations

from clusterkit.probes import KERNEL
from clusterkit.steps.engine import LAUNCH, AtLeast, Change, Fleet, Severity, State, Step

GIB = 1024**3


class SharedMemory(Step):
    """1 GiB of /dev/shm for each rank: a data loader that finds none dies of SIGBUS, without a word."""

    name = "shared memory"
    tags = frozenset({LAUNCH})
    probes = (KERNEL,)

    def skip(self, host: str, fleet: Fleet) -> str:
        """A container has its own (`shm_size`)."""
        return "the container has its own" if fleet.members[host].container_runtime != "none" else ""

    def desired(self, host: str, fleet: Fleet) -> State:
        """1 GiB a rank, but no more than half of the memory, which is the kernel's own default."""
        node = fleet.node(host)
        memory = fleet.facts[host][KERNEL].memory
        wanted = fleet.members[host].threshold("shm_gib") * (len(node.ranks) if node else 1)
        return {"size_gib": AtLeast(round(min(wanted, memory / GIB / 2) if memory else wanted, 1))}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The size of what is mounted there; None if nothing is."""
        size = fleet.facts[host][KERNEL].shm_size
        return {"size_gib": None if size is None else round(size / GIB, 2)}

    def severity(self, change: Change) -> Severity:
        """Nothing at all is fatal to any collective over shared memory; little is a risk."""
        size = change.actual["size_gib"]
        return "warning" if isinstance(size, float) and size > 0 else "failed"

    def explain(self, change: Change) -> str:
        if change.actual["size_gib"] is None:
            return "/dev/shm is not mounted"
        return f"/dev/shm has {change.actual['size_gib']} GiB; data loaders want {change.desired['size_gib']}"

    def hint(self, change: Change) -> str:
        return "as root: mount -o remount,size=8G /dev/shm"
