"""The host's own name leads to the host itself, and not to a loopback address."""

from __future__ import annotations

from clusterkit.facts import Facts
from clusterkit.planning import dialects
from clusterkit.planning.devices import paddle_on
from clusterkit.probes import CONTAINER, INSIDE, NAME, NETWORK, PYTHON
from clusterkit.steps.engine import LAUNCH, Change, Fleet, Severity, State, Status, Step


class HostName(Step):
    """Gloo, and a Paddle without `--host`, publish what the host's name resolves to: 127.0.1.1 meets nobody.

    Only a warning: launch passes `--host` and sets `GLOO_SOCKET_IFNAME`; what else reads the name is at risk.
    A name that leads to another host of the inventory sends this one's peers there. Where the launcher takes
    its address from the name (2.0, 2.1), it has to be the node IP and nothing else.
    """

    name = "host name"
    tags = frozenset({LAUNCH})
    probes = (NAME, NETWORK, PYTHON, CONTAINER, INSIDE)
    # A name server that is silent need not keep a job from starting.
    unknown: Status = "warning"

    def skip(self, host: str, fleet: Fleet) -> str:
        """This machine alone may talk to itself over loopback."""
        local = all(settings.connection == "local" for settings in fleet.members.values())
        return "all nodes are local" if local else ""

    def desired(self, host: str, fleet: Fleet) -> State:
        """No loopback, and nobody else's address; the node IP where the launcher goes by the name."""
        node = fleet.node(host)
        exact = {"address": node.node_ip} if node and _needs_the_name(fleet.facts[host]) else {}
        return {"loopback": False, "another_host": "", **exact}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What the resolver says first."""
        name = fleet.facts[host][NAME]
        first = (name.addresses or ("",))[0]
        exact = {"address": first} if fleet.node(host) and _needs_the_name(fleet.facts[host]) else {}
        return {"loopback": name.loopback, "another_host": _whose(first, host, fleet), **exact}

    def severity(self, change: Change) -> Severity:
        """Launch works around a loopback address, but where Paddle publishes nothing else."""
        bad = "another_host" in change.keys or _needs_the_name(change.facts) or _has_servers(change)
        return "failed" if bad else "warning"

    def explain(self, change: Change) -> str:
        """Without the name itself: every Debian machine has this, and equal words are shown once."""
        if "another_host" in change.keys:
            return f"its own name resolves to {_first(change)}, an address of {change.actual['another_host']}"
        if _needs_the_name(change.facts):
            found = f"resolves to {_first(change)}" if _first(change) else "does not resolve"
            return f"its own name {found}, and that is all that this Paddle's launcher goes by"
        if _has_servers(change):
            return f"its own name resolves to {_first(change)}, where trainers would look for each other"
        return f"its own name resolves to {_first(change)}"

    def hint(self, change: Change) -> str:
        if "another_host" in change.keys:
            name = change.facts[NAME].hostname
            return f"correct the line with {name} in /etc/hosts of {change.host}, or its entry in DNS"
        if _needs_the_name(change.facts):
            return "write the node IP before the host's own name in /etc/hosts, or use Paddle 2.2 or newer"
        if _has_servers(change):
            return "write the node IP before the host's own name in /etc/hosts"
        return (
            f"launch copes; for other programs write the node IP instead of {_first(change)} "
            "before the name in /etc/hosts"
        )


def _first(change: Change) -> str:
    return (change.facts[NAME].addresses or ("",))[0]


def _has_servers(change: Change) -> bool:
    """Parameter-server mode: its Gloo goes by the name whatever `GLOO_SOCKET_IFNAME` says."""
    topology = change.fleet.topology
    return bool(topology and topology.server_endpoints)


def _needs_the_name(facts: Facts) -> bool:
    """The launcher takes its own address from the name, and no option for it."""
    paddle = paddle_on(facts)
    return bool(paddle and dialects.takes_address_from_name(paddle.version))


def _whose(ip: str, host: str, fleet: Fleet) -> str:
    """The other host that has this address; "" if it is the host's own, or nobody's."""
    owners = fleet.once(_owners).get(ip, ())
    return "" if host in owners else next(iter(owners), "")


def _owners(fleet: Fleet) -> dict[str, tuple[str, ...]]:
    """The hosts that have each address; several have that of docker0."""
    found: dict[str, tuple[str, ...]] = {}
    for host, facts in fleet.facts.items():
        network = facts.get(NETWORK)
        for address in network.addresses if network else ():
            if not address.loopback:
                found[address.ip] = (*found.get(address.ip, ()), host)
    return found
