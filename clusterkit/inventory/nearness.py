"""How near two names are: typing slips and other spellings of the same name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def slip_of(name: str, known: Iterable[str]) -> str | None:
    """The one known name that `name` is a typing slip of, or None.

    A slip is one letter added, dropped or changed, two neighbours swapped, another case, or `-` for `_`;
    in names of ten letters and more two of these.
    """
    if len(name) < 4:
        return None
    plain, allowed = _plain(name), _allowed(name)
    for candidate in known:
        if candidate != name and (_plain(candidate) == plain or _distance(name, candidate) <= allowed):
            return candidate
    return None


def near(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that resemble `name`, the nearest first."""
    return difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)


def _allowed(name: str) -> int:
    return 2 if len(name) >= 10 else 1


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _distance(one: str, two: str) -> int:
    """Edits between the two, a swap of neighbours counted once."""
    if abs(len(one) - len(two)) > 2:
        return 3
    older: list[int] = []
    previous = list(range(len(two) + 1))
    for row, letter in enumerate(one, start=1):
        current = [row]
        for column, other in enumerate(two, start=1):
            best = min(
                previous[column] + 1, current[column - 1] + 1, previous[column - 1] + (letter != other)
            )
            if row > 1 and column > 1 and letter == two[column - 2] and one[row - 2] == other:
                best = min(best, older[column - 2] + 1)
            current.append(best)
        older, previous = previous, current
    return previous[-1]
