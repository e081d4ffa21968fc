"""The packet filters of a host in one form, whichever program wrote them and in whose words.

Only what a new TCP connection over IPv4 can meet is kept: a rule for UDP, for IPv6 or for packets of a
connection that stands is left out when it is read, a test that such a packet always passes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

Field = Literal[
    "source", "destination", "source port", "destination port", "in", "out", "to here", "from here", "unknown"
]
Kind = Literal["accept", "drop", "reject", "return", "jump", "goto", "unknown"]
Backend = Literal["iptables-legacy", "iptables-nft", "nft"]
Ranges = tuple[tuple[int, int], ...]

# The mark: the name of every chain, set and policy of ours, and the comment of every rule.
MARK = "clusterkit"

INPUT_HOOKS = frozenset({"ingress", "prerouting", "input"})
OUTPUT_HOOKS = frozenset({"output", "postrouting", "egress"})


@dataclass(frozen=True)
class Condition:
    """One test of a rule.

    `ranges` are addresses or ports as numbers, both ends included; `names` are interfaces, with `*` at the
    end for a beginning, or the words of an `unknown` test, which may or may not hold. `to here` and
    `from here` hold for packets whose destination or source is the host itself.
    """

    field: Field
    ranges: Ranges = ()
    names: tuple[str, ...] = ()
    negated: bool = False


@dataclass(frozen=True)
class Verdict:
    """What a rule does; `target` is the chain of a jump."""

    kind: Kind
    target: str = ""


@dataclass(frozen=True)
class Rule:
    """All conditions must hold. `text` is the rule in its program's words, `handle` nft's number for it."""

    conditions: tuple[Condition, ...]
    verdict: Verdict
    text: str = ""
    comment: str = ""
    handle: int | None = None


@dataclass(frozen=True)
class Chain:
    """Rules in their order. A base chain has a `hook` of the kernel, a `priority` and a `policy`."""

    name: str
    rules: tuple[Rule, ...] = ()
    hook: str = ""
    priority: int = 0
    policy: Literal["accept", "drop"] = "accept"


@dataclass(frozen=True)
class Table:
    """One table of one backend. `command` is the iptables program that changes it, "nft" for nft's own."""

    backend: Backend
    family: str
    name: str
    command: str
    chains: Mapping[str, Chain] = field(default_factory=dict)
    sets: Mapping[str, Ranges] = field(default_factory=dict)

    def bases(self, hooks: frozenset[str]) -> list[Chain]:
        """The base chains at these hooks. A packet must be accepted by every one of them."""
        return [chain for chain in self.chains.values() if chain.hook in hooks]


def ipv4_ranges(*texts: str) -> Ranges:
    """Addresses as numbers: `10.0.0.1`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0` or `10.0.0.1-10.0.0.9` each."""
    return tuple(_ipv4_range(text) for text in texts)


def _ipv4_range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if dash:
        return int(IPv4Address(first)), int(IPv4Address(last))
    network = IPv4Network(text, strict=False)
    return int(network.network_address), int(network.broadcast_address)
