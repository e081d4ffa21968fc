"""nftables: a named set and a rule with our comment, at the head of the chain that drops.

An accept in a table of our own would not overrule that drop. At boot nft's service loads one file, which
usually begins with `flush ruleset`: that file gets one line at its end, which includes a file of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, summarize_address_range

from clusterkit.inventory.model import PortRange
from clusterkit.probes.firewall import FirewallFacts, NftFile, Opening
from clusterkit.probes.firewall.rules import MARK, Chain, Rule, Table
from clusterkit.probes.firewall.shell import NFT_SERVICE, OWN_NFT_FILE
from clusterkit.steps.firewall.files import append_line, remove_line, write
from clusterkit.steps.firewall.programs import by_ports, ordered
from clusterkit.steps.firewall.traverse import Dropped

_INCLUDE = f'include "{OWN_NFT_FILE}"'


@dataclass(frozen=True)
class Marked:
    """A rule with our comment, and where it is."""

    table: Table
    chain: Chain
    rule: Rule

    @property
    def place(self) -> tuple[str, str, str]:
        """Family, table and chain."""
        return self.table.family, self.table.name, self.chain.name


@dataclass(frozen=True)
class Nftables:
    """All tables of nft's own; `chains` are those that drop, or have our rule: family, table, chain."""

    facts: FirewallFacts
    chains: tuple[tuple[str, str, str], ...]

    @property
    def name(self) -> str:
        return "nftables"

    @property
    def _file(self) -> NftFile | None:
        """The file from which all the tables come, if they come from one."""
        tables = {f"{family} {table}" for family, table, _ in self.chains}
        return next((file for file in self.facts.nft_files if tables <= file.tables), None)

    @property
    def kept_in(self) -> str | None:
        return OWN_NFT_FILE if self._file and NFT_SERVICE not in self.facts.idle_services else None

    def marked(self) -> frozenset[Opening]:
        return frozenset(
            opening for each in marked_rules(self.facts) for opening in _openings(each.table, each.rule)
        )

    def is_kept(self, wanted: frozenset[Opening]) -> bool:
        included = self._file is not None and self._file.includes_ours
        return included and self.facts.nft_own == self._own(wanted)

    def open(self, wanted: frozenset[Opening], dropped: Sequence[Dropped]) -> list[str]:
        if any(family not in ("ip", "inet") for family, _, _ in self.chains):
            return []
        lines = ["nft -f - <<END"]
        for family, table in dict.fromkeys((family, table) for family, table, _ in self.chains):
            place = f"{family} {table} {MARK}"
            lines += [
                f"add set {place} {{ type ipv4_addr; flags interval; }}",
                f"flush set {place}",
                f"add element {place} {{ {', '.join(_networks(wanted))} }}",
            ]
        for family, table, chain in self.chains:
            place = f"{family} {table} {chain}"
            # Rules have no names: those of ours are found by their comment, when the line runs.
            lines += [
                f"$(nft -a list chain {place} | "
                f"sed -n 's/.* comment \"{MARK}\" # handle \\([0-9]*\\)$/delete rule {place} handle \\1/p')",
                f"insert rule {place} {_rule(wanted)}",
            ]
        lines.append("END")
        shell = ["\n".join(lines), *_delete(self.facts, self._orphans(), self.chains)]
        if self._file:
            shell += write(OWN_NFT_FILE, self._own(wanted))
            shell += append_line(self._file.path, _INCLUDE)
        return shell

    def _orphans(self) -> list[Marked]:
        """Rules of ours in chains that no packet comes to any more."""
        there = set(self.chains)
        return [each for each in marked_rules(self.facts) if each.place not in there]

    def _own(self, wanted: frozenset[Opening]) -> str:
        """Our file. With the chain declared it loads where the table has gone: nft loads all or nothing."""
        text = ["# Ports open between the nodes of a training cluster. `clusterkit reset` takes this back."]
        for family, table in dict.fromkeys((family, table) for family, table, _ in self.chains):
            text += [
                f"table {family} {table} {{",
                f"\tset {MARK} {{",
                "\t\ttype ipv4_addr",
                "\t\tflags interval",
                f"\t\telements = {{ {', '.join(_networks(wanted))} }}",
                "\t}",
                *(f"\tchain {chain} {{\n\t}}" for f, t, chain in self.chains if (f, t) == (family, table)),
                "}",
            ]
        text += [f"insert rule {' '.join(chain)} {_rule(wanted)}" for chain in self.chains]
        return "\n".join(text)

    def undo(self) -> list[str]:
        return undo(self.facts)


def undo(facts: FirewallFacts) -> list[str]:
    """No rule, set, file or line of ours is left."""
    shell = _delete(facts, marked_rules(facts), ())
    for file in facts.nft_files:
        if file.includes_ours:
            shell += remove_line(file.path, _INCLUDE)
    return [*shell, f"rm -f {OWN_NFT_FILE}"] if facts.nft_own is not None else shell


def marked_rules(facts: FirewallFacts) -> list[Marked]:
    """Every rule of nft's own tables with our comment."""
    return [
        Marked(table, chain, rule)
        for table in _native(facts)
        for chain in table.chains.values()
        for rule in chain.rules
        if rule.comment == MARK
    ]


def _delete(
    facts: FirewallFacts, marked: Sequence[Marked], chains: Sequence[tuple[str, str, str]]
) -> list[str]:
    """The rules are gone, and our sets but in the tables of `chains`."""
    used = {chain[:2] for chain in chains}
    lines = [f"delete rule {' '.join(each.place)} handle {each.rule.handle}" for each in marked]
    lines += [
        f"delete set {table.family} {table.name} {MARK}"
        for table in _native(facts)
        if MARK in table.sets and (table.family, table.name) not in used
    ]
    return ["\n".join(["nft -f - <<'END'", *lines, "END"])] if lines else []


def _native(facts: FirewallFacts) -> Iterator[Table]:
    return (table for table in facts.tables if table.backend == "nft")


def _networks(wanted: frozenset[Opening]) -> list[str]:
    return list(dict.fromkeys(each.source for each in ordered(wanted)))


def _rule(wanted: frozenset[Opening]) -> str:
    ports = ", ".join(str(ports) for ports in by_ports(wanted))
    return f'ip saddr @{MARK} tcp dport {{ {ports} }} accept comment "{MARK}"'


def _openings(table: Table, rule: Rule) -> Iterator[Opening]:
    tests = {condition.field: condition.ranges for condition in rule.conditions}
    for first, last in table.sets.get(MARK, ()):
        for network in summarize_address_range(IPv4Address(first), IPv4Address(last)):
            for ports in tests.get("destination port", ()):
                yield Opening(network, PortRange(*ports))
