"""No two hosts that are reached over ssh are, or claim to be, one machine."""

from __future__ import annotations

from clusterkit.facts import Facts
from clusterkit.probes import HOST
from clusterkit.steps.engine import LAUNCH, Change, Fleet, Severity, State, Step


class OwnMachineId(Step):
    """A machine id of its own: cloned images share one, and so does a machine that is listed twice."""

    name = "machine id"
    tags = frozenset({LAUNCH})
    probes = (HOST,)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Local nodes are one machine, on purpose; a host without an id claims nothing."""
        if fleet.members[host].connection == "local":
            return "a local node shares this machine"
        return "" if fleet.facts[host][HOST].machine_id else "the host has no machine id"

    def desired(self, host: str, fleet: Fleet) -> State:
        """Nobody else's."""
        return {"shared_with": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The other hosts with this machine id."""
        own = fleet.facts[host][HOST].machine_id
        ids = fleet.each(_machine_id)
        return {"shared_with": tuple(other for other in ids if ids[other] == own and other != host)}

    def severity(self, change: Change) -> Severity:
        """Ports are planned as for one machine, so the run works either way."""
        return "warning"

    def explain(self, change: Change) -> str:
        others = change.actual["shared_with"]
        names = ", ".join(others[:4]) if isinstance(others, tuple) else ""
        return f"has the same /etc/machine-id as {names}"

    def hint(self, change: Change) -> str:
        return "listed twice? else it was cloned: remove /etc/machine-id, run systemd-machine-id-setup"


def _machine_id(facts: Facts) -> str | None:
    host = facts.get(HOST)
    return host.machine_id if host else None
