"""What all steps on shared storage have in common."""

from __future__ import annotations

from typing import Any

from clusterkit.facts import Probe
from clusterkit.probes.storage import STORAGE
from clusterkit.steps.engine import Fleet, Step


class StorageStep(Step):
    """A step on the mounts that the inventory declares; keys begin with the path."""

    probes: tuple[Probe[Any], ...] = (STORAGE,)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Nothing is declared."""
        return "" if fleet.members[host].mounts else "the inventory declares no mounts"
