"""Who may come in, and to which ports: all nodes' addresses, and each host's own ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

from clusterkit.errors import TopologyError
from clusterkit.inventory.model import Settings
from clusterkit.planning import addresses
from clusterkit.probes import KERNEL, NETWORK
from clusterkit.probes.firewall import Opening
from clusterkit.probes.network import NetworkFacts
from clusterkit.steps.engine import Fleet
from clusterkit.steps.firewall.regions import port_bits, port_ranges

# Either library takes interfaces by the beginnings of their names; `=` before it means the whole name.
_INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True)
class Ends:
    """A host's end of every connection: its addresses as numbers, and the interfaces that have them."""

    addresses: tuple[int, ...]
    interfaces: frozenset[str]


@dataclass(frozen=True)
class Nodes:
    """All nodes of the inventory. `absent` are those of which no address, or not all of them, is known."""

    ends: Mapping[str, Ends]
    absent: tuple[str, ...] = ()
    problem: str = ""

    @cached_property
    def addresses(self) -> tuple[int, ...]:
        """Every address of every node, in ascending order."""
        return tuple(sorted({address for ends in self.ends.values() for address in ends.addresses}))

    def others(self, host: str) -> tuple[int, ...]:
        """The addresses of all nodes but this one, in ascending order."""
        own = set(self.ends[host].addresses)
        return tuple(address for address in self.addresses if address not in own)


def find(fleet: Fleet) -> Nodes:
    """The nodes of the whole inventory, whatever `--limit` says: a rule must not leave one out."""
    chosen, problem = _interfaces(fleet)
    ends: dict[str, Ends] = {}
    absent: list[str] = []
    for alias, settings in fleet.members.items():
        network = fleet.facts[alias].get(NETWORK) if alias in fleet.facts else None
        if network is not None and alias in chosen:
            names = {chosen[alias], *_named(settings, network)}
            ends[alias] = _ends(network, names)
        else:
            absent.append(alias)
            declared = _declared(settings)
            if declared is not None:
                ends[alias] = Ends((int(declared),), frozenset())
    return Nodes(ends, tuple(absent), problem)


def _interfaces(fleet: Fleet) -> tuple[dict[str, str], str]:
    """The interface of each node's address; else why there is none."""
    nodes = fleet.topology.nodes if fleet.topology else ()
    chosen = {node.alias: node.interface for node in nodes}
    answering = [settings for alias, settings in fleet.members.items() if alias in fleet.facts]
    if len(chosen) == len(answering):
        return chosen, ""
    try:
        found = addresses.fitting(answering, fleet.facts)
    except TopologyError as error:
        return chosen, error.message
    return {**{alias: address.interface for alias, address in found.items()}, **chosen}, ""


def _named(settings: Settings, network: NetworkFacts) -> set[str]:
    """Further interfaces that the job is told to use."""
    found: set[str] = set()
    for variable in _INTERFACE_VARIABLES:
        for word in settings.env.get(variable, "").split(","):
            exact, name = word.startswith("="), word.strip().lstrip("=")
            if name and not name.startswith("^"):
                found |= {
                    each for each in network.interfaces if (each == name if exact else each.startswith(name))
                }
    return found


def _ends(network: NetworkFacts, names: Iterable[str]) -> Ends:
    """All addresses of the interfaces. Nobody comes from loopback."""
    chosen = [each for each in network.addresses if each.interface in set(names) and not each.loopback]
    return Ends(
        tuple(sorted({int(IPv4Address(each.ip)) for each in chosen})),
        frozenset(each.interface for each in chosen),
    )


def _declared(settings: Settings) -> IPv4Address | None:
    try:
        return IPv4Address(settings.node_ip or "")
    except ValueError:
        return None


def own_ports(fleet: Fleet, host: str) -> int:
    """The bits of the ports that a job listens on here: `port_range`, and what the kernel chooses."""
    settings, kernel = fleet.members[host], fleet.facts[host][KERNEL]
    return port_bits((each.first, each.last) for each in (settings.port_range, kernel.ephemeral))


def all_ports(fleet: Fleet) -> int:
    """The bits of the ports that a program of a job listens on anywhere."""
    bits = 0
    for host in fleet.facts:
        if fleet.facts[host].failure(KERNEL) is None and host in fleet.members:
            bits |= own_ports(fleet, host)
    return bits


def openings(nodes: Nodes, ports: int, kept: Iterable[IPv4Network]) -> frozenset[Opening]:
    """What should be open: the fewest networks that hold the nodes' addresses and no other.

    `kept` are addresses that are open already and may still be those of a node that has not answered.
    """
    wanted = [*(IPv4Network(address) for address in nodes.addresses), *kept]
    return frozenset(
        Opening(network, each) for network in collapse_addresses(wanted) for each in port_ranges(ports)
    )
