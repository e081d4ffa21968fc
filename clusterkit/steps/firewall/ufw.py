"""ufw: its own rules, with its own comments; they are live and in its file at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.probes.firewall import FirewallFacts, Opening
from clusterkit.probes.firewall.rules import MARK
from clusterkit.probes.firewall.shell import UFW_RULES
from clusterkit.steps.firewall.programs import ordered
from clusterkit.steps.firewall.traverse import Dropped


@dataclass(frozen=True)
class Ufw:
    """ufw with the rules of its file."""

    facts: FirewallFacts

    @property
    def name(self) -> str:
        return "ufw"

    @property
    def kept_in(self) -> str | None:
        return UFW_RULES

    def marked(self) -> frozenset[Opening]:
        return frozenset(rule.opening for rule in self.facts.ufw if rule.ours)

    def is_kept(self, wanted: frozenset[Opening]) -> bool:
        return wanted - self._others() <= self.marked()

    def open(self, wanted: frozenset[Opening], dropped: Sequence[Dropped]) -> list[str]:
        have, needed = self.marked(), wanted - self._others()
        # ufw asks its rules in their order: before one that denies, ours has to come first.
        denied = any(each.inner == "ufw-user-input" for each in dropped)
        stale = have - needed
        again = have & needed if denied else frozenset()
        verb = "prepend allow" if denied else "allow"
        return [
            *(f"ufw delete allow {_words(each)}" for each in ordered(again)),
            *(f"ufw {verb} {_words(each)} comment {MARK}" for each in ordered((needed - have) | again)),
            *(f"ufw delete allow {_words(each)}" for each in ordered(stale)),
        ]

    def undo(self) -> list[str]:
        return [f"ufw delete allow {_words(each)}" for each in ordered(self.marked())]

    def _others(self) -> frozenset[Opening]:
        """What somebody else's rule opens in the same words: with ours ufw would only change its comment."""
        return frozenset(rule.opening for rule in self.facts.ufw if not rule.ours)


def _words(opening: Opening) -> str:
    ports = opening.ports
    shown = str(ports.first) if ports.first == ports.last else f"{ports.first}:{ports.last}"
    return f"proto tcp from {opening.source} to any port {shown}"
