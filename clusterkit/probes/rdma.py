"""Cards that can do RDMA: InfiniBand, or RoCE."""

from __future__ import annotations

from clusterkit.facts import Output, Probe


def _parse(output: Output) -> tuple[str, ...]:
    return tuple(output.stdout.split())


RDMA = Probe("rdma", "ls /sys/class/infiniband 2>/dev/null; exit 0", _parse, about="RDMA cards")
