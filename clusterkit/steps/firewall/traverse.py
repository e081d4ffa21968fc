"""Packets on their way through a host's chains, whole sets of them at once: what is dropped, and where.

Every base chain at a hook must accept a packet: one that accepts does not overrule another that drops. A
test whose outcome cannot be known from here (a rate, an unknown set) counts as passed for a rule that drops,
and as not passed for one that accepts: what counts as open is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clusterkit.probes.firewall import FirewallFacts
from clusterkit.probes.firewall.rules import INPUT_HOOKS, OUTPUT_HOOKS, Chain, Condition, Rule, Table
from clusterkit.steps.firewall.regions import (
    ALL_PORTS,
    Box,
    Region,
    address_bits,
    port_bits,
    within,
    without,
)

# Jumps can be this deep in the kernel; a file that was recorded wrongly must not hang us.
DEEPEST = 32


@dataclass(frozen=True)
class Flow:
    """New TCP connections from other addresses to `own` ones, or the other way round with `outgoing`.

    `others` are numbers in ascending order. `interfaces` are those by which the packets come or go.
    """

    others: tuple[int, ...]
    ports: int
    own: tuple[int, ...]
    interfaces: frozenset[str]
    outgoing: bool = False

    @property
    def everything(self) -> Region:
        """All packets of the flow."""
        box = Box((1 << len(self.others)) - 1, self.ports)
        return (box,) if box else ()


@dataclass(frozen=True)
class Dropped:
    """Packets that do not get through, and where: `chain` is the base chain, `rule` None for its policy.

    `certain` is False where a test decides whose outcome cannot be known from here.
    """

    box: Box
    table: Table
    chain: Chain
    rule: Rule | None
    inner: str
    certain: bool = True

    @property
    def rejects(self) -> bool:
        """True if the sender is told."""
        return self.rule is not None and self.rule.verdict.kind == "reject"

    def __str__(self) -> str:
        native = self.table.backend == "nft"
        if self.rule is None and native:
            return f"nft {self.table.family} {self.table.name} {self.chain.name}, policy drop"
        if self.rule is None:
            return f"{self.table.command} -P {self.chain.name} DROP"
        return f"nft {self.rule.text}" if native else f"{self.table.command} {self.rule.text}"


def dropped(facts: FirewallFacts, flow: Flow) -> tuple[Dropped, ...]:
    """What of the flow does not get through."""
    found: list[Dropped] = []
    for table, chain in facts.bases(OUTPUT_HOOKS if flow.outgoing else INPUT_HOOKS):
        walk = _Walk(table, chain, flow, found)
        rest = walk.chain(chain, flow.everything, True, 0)
        if chain.policy == "drop":
            found += [Dropped(box, table, chain, None, chain.name) for box in rest]
    return tuple(found)


def can_drop(table: Table, chain: Chain) -> bool:
    """True if some packet of some new TCP connection does not get through this base chain."""
    return chain.policy == "drop" or any(
        rule.verdict.kind in ("drop", "reject", "unknown") for rule in _reached(table, chain, set())
    )


def _reached(table: Table, chain: Chain, seen: set[str]) -> Iterator[Rule]:
    seen.add(chain.name)
    for rule in chain.rules:
        yield rule
        target = table.chains.get(rule.verdict.target)
        if target is not None and target.name not in seen:
            yield from _reached(table, target, seen)


@dataclass
class _Walk:
    """One base chain with all that it jumps to."""

    table: Table
    base: Chain
    flow: Flow
    found: list[Dropped]

    def chain(self, chain: Chain, region: Region, certain: bool, depth: int) -> Region:
        """What comes out at the end, neither accepted nor dropped. `certain`: it came in for sure."""
        passed: Region = ()
        for rule in chain.rules:
            if not region:
                break
            box, sure = self.box(rule.conditions)
            here = within(region, box)
            if not here:
                continue
            rest = without(region, box)
            region, left = self.decide(chain, rule, here, certain and sure, depth)
            region += rest
            passed += left
        return region + passed

    def decide(
        self, chain: Chain, rule: Rule, here: Region, certain: bool, depth: int
    ) -> tuple[Region, Region]:
        """What goes on to the next rule, and what leaves the chain."""
        kind = rule.verdict.kind
        if kind == "accept":
            return (() if certain else here), ()
        if kind in ("drop", "reject", "unknown"):
            sure = certain and kind != "unknown"
            self.found += [Dropped(box, self.table, self.base, rule, chain.name, sure) for box in here]
            return (), ()
        if kind == "return":
            return () if certain else here, here
        target = self.table.chains.get(rule.verdict.target)
        if target is None or depth >= DEEPEST:
            return here, ()
        back = self.chain(target, here, certain, depth + 1)
        if kind == "goto":
            return () if certain else here, back
        return back, ()

    def box(self, conditions: Sequence[Condition]) -> tuple[Box, bool]:
        """The packets that pass the tests, and whether they do for sure."""
        nodes, ports, certain = -1, ALL_PORTS, True
        for condition in conditions:
            passes: bool | None = True
            if condition.field == self.far:
                bits = address_bits(condition.ranges, self.flow.others)
                nodes &= ~bits if condition.negated else bits
            elif condition.field == "destination port":
                bits = port_bits(condition.ranges)
                ports &= ~bits if condition.negated else bits
            else:
                passes = self.known(condition)
            if passes is False:
                return Box(0, 0), True
            certain = certain and passes is True
        return Box(nodes, ports), certain

    @property
    def far(self) -> str:
        """Where the other node's address stands."""
        return "destination" if self.flow.outgoing else "source"

    def known(self, condition: Condition) -> bool | None:
        """Whether all packets of the flow pass (True) or none (False); None if that cannot be known."""
        passes: bool | None = None
        if condition.field in ("source", "destination"):
            passes = _all_or_none(
                any(first <= own <= last for first, last in condition.ranges) for own in self.flow.own
            )
        elif condition.field == "source port":
            # The kernel chose it: any from 1024 upwards.
            covered = port_bits(condition.ranges) >> 1024
            passes = True if covered == ALL_PORTS >> 1024 else None if covered else False
        elif condition.field in ("in", "out"):
            passes = self.interface(condition)
        elif condition.field in ("to here", "from here"):
            passes = (condition.field == "from here") == self.flow.outgoing
        return passes if passes is None or not condition.negated else not passes

    def interface(self, condition: Condition) -> bool | None:
        """Packets that come in have no interface to go out, and the other way round: such a test fails."""
        if (condition.field == "out") != self.flow.outgoing:
            return False
        return _all_or_none(
            any(_named(name, pattern) for pattern in condition.names) for name in self.flow.interfaces
        )


def _named(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _all_or_none(tests: Iterator[bool]) -> bool | None:
    outcomes = set(tests)
    return outcomes.pop() if len(outcomes) == 1 else None
