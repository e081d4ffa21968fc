"""What every firewall program has in common: it opens what is wanted, and takes back what is marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from clusterkit.inventory.model import PortRange
from clusterkit.probes.firewall import Opening
from clusterkit.steps.firewall.traverse import Dropped


class Program(Protocol):
    """One firewall on one host, from its facts. Lines are shell for root."""

    @property
    def name(self) -> str:
        """How it is called."""

    @property
    def kept_in(self) -> str | None:
        """The file from which it loads what is ours at boot; None where it has none."""

    def marked(self) -> frozenset[Opening]:
        """What is open by marked rules, now or after a restart."""

    def is_kept(self, wanted: frozenset[Opening]) -> bool:
        """Whether `kept_in` has what is wanted."""

    def open(self, wanted: frozenset[Opening], dropped: Sequence[Dropped]) -> list[str]:
        """Lines after which the marked rules are what is wanted; [] where this takes a person."""

    def undo(self) -> list[str]:
        """Lines after which nothing of ours is left."""


def ordered(openings: Iterable[Opening]) -> list[Opening]:
    """The same for the same set, so that equal hosts get equal lines."""
    return sorted(openings, key=lambda each: each.order)


def by_ports(openings: Iterable[Opening]) -> dict[PortRange, list[str]]:
    """The networks of each port range."""
    found: dict[PortRange, list[str]] = {}
    for each in ordered(openings):
        found.setdefault(each.ports, []).append(each.source)
    return dict(sorted(found.items(), key=lambda item: item[0].first))
