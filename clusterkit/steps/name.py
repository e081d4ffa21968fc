"""The host's own name does not lead to a loopback address."""

from __future__ import annotations

from clusterkit.probes import NAME
from clusterkit.steps.engine import LAUNCH, Change, Fleet, Severity, State, Status, Step


class HostName(Step):
    """Gloo, and a Paddle without `--host`, publish what the host's name resolves to: 127.0.1.1 meets nobody.

    Only a warning: launch passes `--host` and sets `GLOO_SOCKET_IFNAME`; what else reads the name is at risk.
    """

    name = "host name"
    tags = frozenset({LAUNCH})
    probes = (NAME,)
    # A name server that is silent need not keep a job from starting.
    unknown: Status = "warning"

    def skip(self, host: str, fleet: Fleet) -> str:
        """This machine alone may talk to itself over loopback."""
        local = all(settings.connection == "local" for settings in fleet.members.values())
        return "all nodes are local" if local else ""

    def desired(self, host: str, fleet: Fleet) -> State:
        """No loopback."""
        return {"loopback": False}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What the resolver says first."""
        return {"loopback": fleet.facts[host][NAME].loopback}

    def severity(self, change: Change) -> Severity:
        """Launch works around it."""
        return "warning"

    def explain(self, change: Change) -> str:
        """Without the name itself: every Debian machine has this, and equal words are shown once."""
        return f"its own name resolves to {_first(change)}"

    def hint(self, change: Change) -> str:
        return (
            f"launch copes; for other programs write the node IP instead of {_first(change)} "
            "before the name in /etc/hosts"
        )


def _first(change: Change) -> str:
    return (change.facts[NAME].addresses or ("",))[0]
