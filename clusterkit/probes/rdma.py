"""Cards that can do RDMA: InfiniBand, or RoCE; and the files by which a program reaches them."""

from __future__ import annotations

from clusterkit.facts import Output, Probe

_SHELL = """
for file in {}/*; do
    if [ -e "$file" ]; then echo "${{file##*/}}"; fi
done
"""


def _parse(output: Output) -> tuple[str, ...]:
    return tuple(output.stdout.split())


RDMA = Probe("rdma", _SHELL.format("/sys/class/infiniband"), _parse, about="RDMA cards")
# Empty without the module ib_uverbs: then a card is of no use to a program, and Docker refuses the path.
VERBS = Probe("verbs", _SHELL.format("/dev/infiniband"), _parse, about="devices of RDMA cards")
