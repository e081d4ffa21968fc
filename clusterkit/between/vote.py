"""What should be equal on all hosts is put to a vote: nobody has to write down what is right (pure).

The value that most hosts have wins, and the others are named with theirs. Hardware may differ between groups
of the inventory: there each group votes on its own. What must be unique is reported where it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusterkit.between.ballots import BALLOTS, MTU, Ballot, asked
from clusterkit.facts import Facts
from clusterkit.inventory.model import Inventory
from clusterkit.probes import GPUS, HOST, NETWORK
from clusterkit.steps import Fleet
from clusterkit.steps.agreement import Groups, agreements, of_host
from clusterkit.steps.engine import Status


@dataclass(frozen=True)
class VoteEntry:
    """How one vote ended. `odd`: host → its value; without a majority (a tie) that is every host.

    `expected`: group → value, where groups of the inventory differ as groups.
    """

    fact: str
    majority: str | None
    odd: Mapping[str, str] = field(default_factory=dict)
    status: Status = "ok"
    hint: str = ""
    expected: Mapping[str, str] = field(default_factory=dict)
    unique: bool = False

    def as_json(self) -> dict[str, Any]:
        """An entry of `vote`, as design.md's JSON has it."""
        return {
            "fact": self.fact,
            "majority": self.majority,
            "odd": dict(self.odd),
            "status": self.status,
            "expected": dict(self.expected),
            "unique": self.unique,
            "hint": self.hint,
        }


def vote(fleet: Fleet, groups: Groups | None = None, ballots: Sequence[Ballot] = BALLOTS) -> list[VoteEntry]:
    """Every ballot that at least two hosts can cast, and everything unique that is not."""
    entries = []
    for ballot in ballots:
        values = {host: value for host, facts in fleet.facts.items() if (value := ballot.read(facts))}
        entries.append(_count(ballot, values, groups or {}))
    mtus = _mtus(fleet)
    entries.append(_count(MTU, mtus, {}))
    unique = _unique(fleet)
    return [entry for entry in (*entries, *unique) if entry is not None]


def groups_of(inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """The groups of the inventory with all their hosts, those of child groups included."""
    found: dict[str, list[str]] = {}
    for host in inventory.hosts.values():
        for group in host.groups:
            found.setdefault(group, []).append(host.name)
    return {group: tuple(hosts) for group, hosts in found.items()}


def _count(ballot: Ballot, values: Mapping[str, str], groups: Groups) -> VoteEntry | None:
    if len(values) < 2:
        return None
    majority = _most(values.values())
    agreed = agreements(values, groups) if ballot.by_group else {}
    odd = {host: value for host, value in values.items() if not _fits(host, value, majority, agreed, groups)}
    expected = agreed if len(set(agreed.values())) > 1 else {}
    return VoteEntry(
        ballot.fact,
        majority,
        odd,
        ballot.status if odd else "ok",
        ballot.hint if odd else "",
        expected,
    )


def _most(values: Iterable[str]) -> str | None:
    """The value that more hosts have than any other; None if there is none."""
    counted = Counter(values).most_common(2)
    if len(counted) == 2 and counted[0][1] == counted[1][1]:
        return None
    return str(counted[0][0])


def _fits(host: str, value: str, majority: str | None, agreed: Mapping[str, str], groups: Groups) -> bool:
    """As its groups have agreed, where they have; else as most hosts."""
    own = of_host(host, agreed, groups)
    return value in own if own else value == majority


def _mtus(fleet: Fleet) -> dict[str, str]:
    """The MTU of each node's interface on the training network."""
    found = {}
    for host, facts in fleet.facts.items():
        node, network = fleet.node(host), facts.get(NETWORK)
        link = network.interfaces.get(node.interface) if node and network else None
        if link is not None:
            found[host] = str(link.mtu)
    return found


def _unique(fleet: Fleet) -> list[VoteEntry]:
    """What two hosts must not share; nodes on this machine share it on purpose."""
    remote = [host for host in fleet.facts if fleet.members[host].connection != "local"]
    cases: Sequence[tuple[str, Callable[[str], Sequence[str]], str]] = (
        ("host name", lambda host: _one(_host_name(fleet.facts[host])), "give each host a name of its own"),
        (
            "machine id",
            lambda host: _one(_machine_id(fleet.facts[host])),
            "cloned? remove /etc/machine-id and run systemd-machine-id-setup",
        ),
        ("node IP", lambda host: _one(_node_ip(fleet, host)), "correct node_ip in the inventory"),
        ("GPU UUID", lambda host: _uuids(fleet.facts[host]), "one machine, listed twice?"),
    )
    entries = []
    for fact, read, hint in cases:
        held = {host: read(host) for host in remote}
        counted = Counter(value for values in held.values() for value in values)
        odd = {
            host: ", ".join(shared)
            for host, values in held.items()
            if (shared := [value for value in values if counted[value] > 1])
        }
        if odd:
            entries.append(VoteEntry(fact, None, odd, "warning", hint, unique=True))
    return entries


def _host_name(facts: Facts) -> str | None:
    host = asked(facts, HOST)
    return host.hostname or None if host else None


def _machine_id(facts: Facts) -> str | None:
    host = asked(facts, HOST)
    return host.machine_id or None if host else None


def _one(value: str | None) -> Sequence[str]:
    return (value,) if value else ()


def _node_ip(fleet: Fleet, host: str) -> str | None:
    node = fleet.node(host)
    return node.node_ip if node else None


def _uuids(facts: Facts) -> Sequence[str]:
    return tuple(gpu.uuid for gpu in facts.get(GPUS) or ())
