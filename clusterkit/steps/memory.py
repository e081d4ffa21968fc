"""Enough memory for the ranks."""

from __future__ import annotations

from clusterkit.probes import KERNEL
from clusterkit.steps.engine import AtLeast, Change, Fleet, Severity, State, Step

GIB = 1024**3


class Memory(Step):
    """1 GiB of free memory for each rank: without it the kernel ends one, and the job with it."""

    name = "memory"
    probes = (KERNEL,)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Kernels before 3.14 do not say what is available."""
        return (
            "" if fleet.facts[host][KERNEL].memory_available else "the kernel does not say what is available"
        )

    def desired(self, host: str, fleet: Fleet) -> State:
        """1 GiB for each rank of the host."""
        return {
            "available_gib": AtLeast(fleet.members[host].threshold("memory_warn_gib") * _ranks(host, fleet))
        }

    def actual(self, host: str, fleet: Fleet) -> State:
        """What programs could still get, caches given back."""
        return {"available_gib": round((fleet.facts[host][KERNEL].memory_available or 0) / GIB, 1)}

    def severity(self, change: Change) -> Severity:
        """Under what importing Paddle takes, nothing starts."""
        least = change.settings.threshold("memory_fail_gib") * _ranks(change.host, change.fleet) * GIB
        return "failed" if (change.facts[KERNEL].memory_available or 0) < least else "warning"

    def explain(self, change: Change) -> str:
        total = round((change.facts[KERNEL].memory or 0) / GIB, 1)
        return (
            f"{change.actual['available_gib']} GiB of {total} GiB memory are available, "
            f"for {_ranks(change.host, change.fleet)} ranks"
        )

    def hint(self, change: Change) -> str:
        return f"end what uses it (ps aux --sort=-rss on {change.host}), or plan fewer ranks there"


def _ranks(host: str, fleet: Fleet) -> int:
    node = fleet.node(host)
    return len(node.ranks) if node else 1
