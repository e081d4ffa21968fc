"""Whether root can be had without asking: what a fix needs."""

from __future__ import annotations

from clusterkit.facts import Output, Probe


def _parse(output: Output) -> bool:
    return output.stdout.strip() == "0"


ROOT = Probe("root", "id -u", _parse, root=True, about="becoming root")
