"""What lies where the shared storage should be."""

from __future__ import annotations

from clusterkit.inventory.model import Mount
from clusterkit.steps.engine import LAUNCH, Change, Fleet, State
from clusterkit.steps.storage.base import StorageStep
from clusterkit.steps.storage.declared import facts_of, line_for, mounts, obstacle
from clusterkit.steps.storage.fstab import MARK


class MountSource(StorageStep):
    """On each path lies what was declared, or nothing. Never mended: somebody may use it."""

    name = "mount source"
    tags = frozenset({LAUNCH})

    def desired(self, host: str, fleet: Fleet) -> State:
        return {mount.path: _declared(mount) for mount in mounts(fleet.members[host])}

    def actual(self, host: str, fleet: Fleet) -> State:
        settings, facts = fleet.members[host], facts_of(host, fleet)
        return {
            mount.path: obstacle(mount, settings, facts) or _declared(mount) for mount in mounts(settings)
        }

    def explain(self, change: Change) -> str:
        return "; ".join(
            f"{path} has {change.actual[path]} where {change.desired[path]} is declared"
            for path in change.keys
        )

    def hint(self, change: Change) -> str:
        path = change.keys[0]
        there = str(change.actual[path])
        if there == "files of this host":
            return f"mounting would hide them: move what is in {path} elsewhere"
        if there == "a file":
            return f"remove {path}, or declare another path"
        if there.startswith("a second entry"):
            return "declare each path once"
        if there.endswith("in /etc/fstab"):
            return "remove that line, or declare what it mounts"
        mount = next(each for each in mounts(change.settings) if each.path == path)
        line = line_for(mount, facts_of(change.host, change.fleet))
        if line is not None and MARK in line.options:
            return (
                "an earlier preflight mounted that: clusterkit reset takes it back, then run preflight again"
            )
        return f"correct the inventory, or, when nothing uses it, as root: umount {path}"


def _declared(mount: Mount) -> str:
    return f"{mount.source} ({mount.type})"
