"""The ports that the run would own are free."""

from __future__ import annotations

from clusterkit.probes import LISTENING
from clusterkit.steps.engine import LAUNCH, Change, Fleet, State, Step


class PortsFree(Step):
    """Nothing listens in the run's window: the launcher would take it for its master, and wait for ever."""

    name = "ports"
    tags = frozenset({LAUNCH})
    probes = (LISTENING,)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Without a planned run there is no window yet."""
        return "" if fleet.topology else "no run is planned"

    def desired(self, host: str, fleet: Fleet) -> State:
        """None of them."""
        return {"in_use": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Those of the window that are listened on."""
        ports = fleet.facts[host][LISTENING].ports
        window = fleet.topology.port_window if fleet.topology else ()
        return {"in_use": tuple(str(port) for port in sorted(ports) if port in window)}

    def explain(self, change: Change) -> str:
        port = _first(change)
        return f"port {port} is in use by {change.facts[LISTENING].described(port)}"

    def hint(self, change: Change) -> str:
        return f"end what listens there, or write a port_range without {_first(change)} in the inventory"


def _first(change: Change) -> int:
    in_use = change.actual["in_use"]
    return int(in_use[0]) if isinstance(in_use, tuple) else 0
