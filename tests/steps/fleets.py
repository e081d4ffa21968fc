"""A fleet from a case file (tests/cases/steps/STEP/CASE.json).

hosts     alias → settings (fields of Settings), facts (probe → recorded case), clock ([offset, error])
install   true: packages may be installed
devices   alias → the GPUs planned there; the CPU where nothing is said
planned   false: no run is planned; or the aliases for which one is, where others cannot take part
groups    group → its hosts
starting  true: a job is about to start, perhaps on a part of the inventory
on        the host that is judged (the first one)
verdict   what is expected of it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterkit.facts import Clock
from clusterkit.inventory.model import Mount, PortRange, Settings
from clusterkit.planning.topology import Node, Topology
from clusterkit.steps import Fleet
from clusterkit.steps.engine import Permissions
from tests.facts.recorded import facts

WINDOW = PortRange(30890, 30919)


def fleet(case: Mapping[str, Any]) -> Fleet:
    """The case's hosts; node N has the address 10.0.0.N+1 and two ranks, or one for each GPU."""
    hosts: Mapping[str, Mapping[str, Any]] = case["hosts"]
    members = {
        alias: Settings(alias, f"{alias}.example", **{"become": True, **_typed(host.get("settings", {}))})
        for alias, host in hosts.items()
    }
    found = {
        alias: facts(alias, Clock(*host.get("clock", (0.0, 0.001))), **host.get("facts", {}))
        for alias, host in hosts.items()
    }
    planned = case.get("planned", True)
    aliases = list(hosts) if planned is True else planned or []
    return Fleet(
        members,
        found,
        topology(aliases, case.get("devices", {})) if aliases else None,
        permissions=Permissions(install=case.get("install", False)),
        starting=case.get("starting", False),
        groups=case.get("groups", {}),
    )


def _typed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no mounts."""
    mounts = {"mounts": tuple(Mount(**each) for each in settings["mounts"])} if "mounts" in settings else {}
    return {**settings, **mounts}


def topology(aliases: list[str], devices: Mapping[str, list[int]]) -> Topology:
    """A planned run over these hosts."""
    nodes: list[Node] = []
    first = 0
    for number, alias in enumerate(aliases):
        gpus = tuple(devices[alias]) if alias in devices else None
        ranks = tuple(range(first, first + (len(gpus) if gpus else 2)))
        first += len(ranks)
        nodes.append(Node(alias, number, f"10.0.0.{number + 1}", "enp1s0f0", ranks, gpus, "python3"))
    share = PortRange(WINDOW.first + 2, WINDOW.last)
    return Topology(tuple(nodes), WINDOW, WINDOW.first, WINDOW.first + 1, (share,) * len(nodes))
