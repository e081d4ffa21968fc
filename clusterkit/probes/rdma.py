"""Cards that can do RDMA: InfiniBand, or RoCE."""

from __future__ import annotations

from clusterkit.facts import Output, Probe

_SHELL = """
for card in /sys/class/infiniband/*; do
    if [ -e "$card" ]; then echo "${card##*/}"; fi
done
"""


def _parse(output: Output) -> tuple[str, ...]:
    return tuple(output.stdout.split())


RDMA = Probe("rdma", _SHELL, _parse, about="RDMA cards")
