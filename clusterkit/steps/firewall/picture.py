"""How one host stands: what of the nodes' packets is dropped and by whom, what is ours, what should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from clusterkit.probes.firewall import FIREWALL, FirewallFacts, Opening
from clusterkit.probes.firewall.rules import INPUT_HOOKS, Chain, Table
from clusterkit.steps.engine import Fleet
from clusterkit.steps.firewall import nftables
from clusterkit.steps.firewall.firewalld import Firewalld
from clusterkit.steps.firewall.iptables import Iptables, undo_files
from clusterkit.steps.firewall.nftables import Nftables
from clusterkit.steps.firewall.nodes import Nodes, all_ports, find, openings, own_ports
from clusterkit.steps.firewall.programs import Program, ordered
from clusterkit.steps.firewall.regions import by_ports, port_bits, port_ranges
from clusterkit.steps.firewall.traverse import Dropped, Flow, can_drop, dropped
from clusterkit.steps.firewall.ufw import Ufw

# More addresses than this are counted.
MOST_NAMED = 8


@dataclass(frozen=True)
class Part:
    """One firewall program of the host with the packets that it drops."""

    program: Program
    dropped: tuple[Dropped, ...]
    marked: frozenset[Opening]
    stale: tuple[Opening, ...]


@dataclass(frozen=True)
class Picture:
    """A host's firewall. `wanted` is what should be open; `foreign` drops where we write no rules."""

    decided_by: str
    wanted: frozenset[Opening]
    closed: tuple[str, ...]
    dropped: tuple[Dropped, ...]
    parts: tuple[Part, ...]
    foreign: tuple[Dropped, ...]

    @property
    def stale(self) -> tuple[str, ...]:
        """What is open by marked rules and should not be."""
        return tuple(dict.fromkeys(str(each) for part in self.parts for each in part.stale))

    @property
    def should_be_kept(self) -> tuple[str, ...]:
        """The files that should have the rules."""
        return tuple(part.program.kept_in for part in self.parts if part.program.kept_in)

    @property
    def is_kept(self) -> tuple[str, ...]:
        """Those of them that have."""
        return tuple(
            part.program.kept_in
            for part in self.parts
            if part.program.kept_in and part.program.is_kept(self.wanted)
        )

    @property
    def live_only(self) -> tuple[str, ...]:
        """The programs with rules of ours that they will not load again."""
        return tuple(part.program.name for part in self.parts if part.marked and not part.program.kept_in)

    def fix(self) -> list[str]:
        """Lines that open what is closed, drop what is stale and keep the rest, in each program's own way."""
        lines: list[str] = []
        for part in self.parts:
            kept = part.program.kept_in is None or part.program.is_kept(self.wanted)
            if part.dropped or part.stale or not kept:
                lines += part.program.open(self.wanted, part.dropped)
        return lines


class _Pictures:
    """The picture of each host, drawn once, and what is equal for many hosts."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._drawn: dict[str, Picture] = {}
        self._openings: dict[int, frozenset[Opening]] = {}

    def of(self, host: str) -> Picture:
        """The picture of a host."""
        if host not in self._drawn:
            self._drawn[host] = self._draw(host)
        return self._drawn[host]

    def _draw(self, host: str) -> Picture:
        fleet = self._fleet
        facts, nodes, ports = fleet.facts[host][FIREWALL], fleet.once(find), own_ports(fleet, host)
        from_others, from_itself = incoming(nodes, host, ports)
        outside, inside = dropped(facts, from_others), dropped(facts, from_itself)
        by_owner: dict[str, list[Dropped]] = {}
        for each in (*outside, *inside):
            by_owner.setdefault(owner(facts, each), []).append(each)
        foreign = tuple(by_owner.pop("", ()))
        programs = _programs(facts, by_owner)
        marked = {name: program.marked() for name, program in programs.items()}
        parts = tuple(
            Part(program, tuple(by_owner.get(name, ())), marked[name], _stale(marked[name], nodes, ports))
            for name, program in programs.items()
            if by_owner.get(name) or marked[name]
        )
        return Picture(
            decided_by(facts),
            self._wanted(nodes, ports, marked.values()),
            (*_closed(outside, from_others), *_closed(inside, from_itself)),
            (*outside, *inside),
            parts,
            foreign,
        )

    def _wanted(self, nodes: Nodes, ports: int, marked: Iterable[frozenset[Opening]]) -> frozenset[Opening]:
        """What should be open. While a node has not answered, what is open may be its address, and stays."""
        if nodes.absent:
            kept = [each.network for of_one in marked for each in of_one]
            return openings(nodes, ports, kept)
        if ports not in self._openings:
            self._openings[ports] = openings(nodes, ports, ())
        return self._openings[ports]


def draw(host: str, fleet: Fleet) -> Picture:
    """The picture of a host. Raises ProbeFailed where its rules could not be read."""
    return fleet.once(_Pictures).of(host)


def incoming(nodes: Nodes, host: str, ports: int) -> tuple[Flow, Flow]:
    """From the other nodes, and from the host to itself: its own ranks meet there too."""
    ends = nodes.ends[host]
    return (
        Flow(nodes.others(host), ports, ends.addresses, ends.interfaces),
        Flow(ends.addresses, ports, ends.addresses, frozenset({"lo"})),
    )


def outgoing(fleet: Fleet, host: str) -> Flow:
    """To every port of a job on the other nodes."""
    nodes = fleet.once(find)
    ends = nodes.ends[host]
    return Flow(nodes.others(host), fleet.once(all_ports), ends.addresses, ends.interfaces, outgoing=True)


def undo(facts: FirewallFacts) -> list[str]:
    """Lines after which no program has a rule of ours, whoever decides now."""
    programs = _programs(facts, {})
    lines = [line for program in programs.values() for line in program.undo()]
    if "nftables" not in programs:
        lines += nftables.undo(facts)
    return [*lines, *undo_files(facts)]


# --- who decides -----------------------------------------------------------------------------------


def decided_by(facts: FirewallFacts) -> str:
    """Who may drop what comes in, from the rules that the kernel has; "" if nobody does."""
    names = [_called(facts, table) for table, chain in facts.bases(INPUT_HOOKS) if can_drop(table, chain)]
    docker = "; Docker for its containers' networks" if facts.docker else ""
    return " and ".join(dict.fromkeys(names)) + docker if names else ""


def _called(facts: FirewallFacts, table: Table) -> str:
    kind = _kind(facts, table)
    if kind in ("ufw", "firewalld"):
        return f"{kind} over {'nftables' if table.backend == 'nft' else table.backend}"
    return f"nftables ({table.family} {table.name})" if kind == "nftables" else kind


def _kind(facts: FirewallFacts, table: Table) -> str:
    """Which program writes the chains of a table."""
    if table.backend == "nft":
        return "firewalld" if (table.family, table.name) == ("inet", "firewalld") else "nftables"
    if "INPUT_ZONES" in table.chains and facts.firewalld is not None:
        return "firewalld"
    return "ufw" if "ufw-before-input" in table.chains else table.backend


def owner(facts: FirewallFacts, each: Dropped) -> str:
    """The name of the program that can open what was dropped; "" if we write no rules in such a place."""
    kind = _kind(facts, each.table)
    if each.table.backend == "nft":
        return kind if each.table.family in ("ip", "inet") else ""
    if each.table.name != "filter" or each.chain.name != "INPUT":
        return ""
    # A rule that somebody put into INPUT itself comes before or after the program's own chains.
    beside = each.rule is not None and each.inner == "INPUT" and kind == "ufw"
    return each.table.backend if beside else kind


def _programs(facts: FirewallFacts, by_owner: dict[str, list[Dropped]]) -> dict[str, Program]:
    """Every program of the host that has, or should get, rules of ours."""
    found: dict[str, Program] = {}
    if facts.ufw or "ufw" in by_owner:
        found["ufw"] = Ufw(facts)
    if facts.firewalld is not None or facts.firewalld_policy is not None:
        found["firewalld"] = Firewalld(facts)
    for table in facts.tables:
        if table.backend != "nft" and table.name == "filter":
            found[table.backend] = Iptables(facts, table)
    chains = [_place(each.table, each.chain) for each in by_owner.get("nftables", ())]
    marked = nftables.marked_rules(facts)
    chains += [each.place for each in marked if each.chain.hook]
    if chains or marked:
        found["nftables"] = Nftables(facts, tuple(dict.fromkeys(chains)))
    return found


def _place(table: Table, chain: Chain) -> tuple[str, str, str]:
    return table.family, table.name, chain.name


# --- words -----------------------------------------------------------------------------------------


def _closed(found: Sequence[Dropped], flow: Flow) -> Iterator[str]:
    """`30000-65535 from all other nodes`, or from which of them."""
    for ports, nodes in by_ports(each.box for each in found).items():
        shown = ", ".join(map(str, port_ranges(ports)))
        count = nodes.bit_count()
        if "lo" in flow.interfaces:
            yield f"{shown} from itself"
        elif count == len(flow.others):
            yield f"{shown} from all other nodes"
        elif count > MOST_NAMED:
            yield f"{shown} from {count} of {len(flow.others)} addresses of nodes"
        else:
            closed = (IPv4Address(each) for bit, each in enumerate(flow.others) if nodes >> bit & 1)
            yield f"{shown} from {', '.join(map(str, closed))}"


def _stale(marked: frozenset[Opening], nodes: Nodes, ports: int) -> tuple[Opening, ...]:
    """Openings of ours to who is no node, or to ports that a job does not use.

    While a node has not answered, an address that is nobody's may be its.
    """
    known = nodes.addresses

    def is_stale(opening: Opening) -> bool:
        if port_bits([(opening.ports.first, opening.ports.last)]) & ~ports:
            return True
        first, last = int(opening.network[0]), int(opening.network[-1])
        nodes_in_it = sum(first <= address <= last for address in known)
        return not nodes.absent and nodes_in_it < opening.network.num_addresses

    return tuple(each for each in ordered(marked) if is_stale(each))
