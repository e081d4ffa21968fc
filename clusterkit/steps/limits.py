"""Limits of the session that will run the job."""

from __future__ import annotations

from clusterkit.probes import HOST, KERNEL
from clusterkit.probes.rdma import RDMA
from clusterkit.steps.engine import AtLeast, Change, Fleet, Recorded, Severity, State, Step

# Sockets to every other rank, and the pipes and files of data loaders.
FILES = 1024
FILES_OF_A_NODE = 64
UNLIMITED = "unlimited"
# As a number that is more than any limit.
MANY = 2**31


class Limits(Step):
    """Open files for the whole job's sockets, and memory that a card may lock, where one does RDMA."""

    name = "limits"
    probes = (KERNEL, RDMA, HOST)

    def skip(self, host: str, fleet: Fleet) -> str:
        """A container has its own."""
        return "the container has its own" if fleet.members[host].container_runtime != "none" else ""

    def desired(self, host: str, fleet: Fleet) -> State:
        """`ulimit -n` of 1024, and 64 for each node from the ninth on; with RDMA no limit for `-l`."""
        nodes = len(fleet.members)
        return {
            "open_files": AtLeast(FILES + FILES_OF_A_NODE * max(0, nodes - 8)),
            "locked_bytes": UNLIMITED if fleet.facts[host].get(RDMA) else Recorded(),
        }

    def actual(self, host: str, fleet: Fleet) -> State:
        """As a login without a terminal gets them."""
        kernel = fleet.facts[host][KERNEL]
        return {
            "open_files": MANY if kernel.open_files is None else kernel.open_files,
            "locked_bytes": UNLIMITED if kernel.locked_memory is None else kernel.locked_memory,
        }

    def severity(self, change: Change) -> Severity:
        """Without locked memory InfiniBand does not even start; files may last."""
        return "failed" if "locked_bytes" in change.keys else "warning"

    def explain(self, change: Change) -> str:
        parts = []
        if "locked_bytes" in change.keys:
            card = (change.facts.get(RDMA) or ("",))[0]
            mib = int(change.facts[KERNEL].locked_memory or 0) // 1024**2
            parts.append(f"ulimit -l is {mib} MiB, RDMA over {card} needs it unlimited")
        if "open_files" in change.keys:
            hard = change.facts[KERNEL].open_files_hard
            most = "no hard limit" if hard is None else f"hard limit {hard}"
            wanted = change.desired["open_files"]
            parts.append(f"ulimit -n is {change.actual['open_files']} ({most}), this job wants {wanted}")
        return "; ".join(parts)

    def hint(self, change: Change) -> str:
        user = change.facts[HOST].user
        lines = {"locked_bytes": f"{user} - memlock unlimited", "open_files": f"{user} - nofile 65536"}
        wanted = ", ".join(f"`{lines[key]}`" for key in change.keys)
        return f"as root: a file in /etc/security/limits.d/ with {wanted}; it holds for new logins"
