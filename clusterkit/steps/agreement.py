"""What the groups of an inventory have agreed on: hardware may differ between them, and not within one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

V = TypeVar("V")

Groups = Mapping[str, Sequence[str]]


def agreements(values: Mapping[str, V], groups: Groups) -> dict[str, V]:
    """The value of each group, of two hosts and more though not of all, in which more than half have one."""
    agreed = {}
    for group, members in groups.items():
        votes = [values[host] for host in members if host in values]
        if not 2 <= len(votes) < len(values):
            continue
        value, count = Counter(votes).most_common(1)[0]
        if count >= 2 and 2 * count > len(votes):
            agreed[group] = value
    return agreed


def of_host(host: str, agreed: Mapping[str, V], groups: Groups) -> list[V]:
    """What the groups of this host have agreed on, that of the smallest first; [] where none of them has."""
    own = sorted((group for group in agreed if host in groups[group]), key=lambda group: len(groups[group]))
    return [agreed[group] for group in own]
