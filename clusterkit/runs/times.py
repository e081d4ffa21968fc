"""When gathered logs were written: `rank-0003.times` beside `rank-0003.log`, a line `OFFSET TIME` each.

All bytes before OFFSET had been written at TIME, in seconds of this machine's clock. The hosts keep such
files (node/times.py); their clocks' offsets, as measured at the launch, are taken off before they are kept.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from clusterkit.errors import InputError

Entry = tuple[int, float]

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Written:
    """The entries of one log, rising."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._at: list[float] = []

    def add(self, entries: Sequence[Entry]) -> list[Entry]:
        """Take what is new of these; what that was."""
        new = [entry for entry in entries if not self._offsets or entry[0] > self._offsets[-1]]
        for offset, at in new:
            self._offsets.append(offset)
            self._at.append(max(at, self._at[-1]) if self._at else at)
        return new

    def at(self, offset: int) -> float | None:
        """When the byte at this offset was there; None if it is not known."""
        place = bisect.bisect_right(self._offsets, offset)
        return self._at[place] if place < len(self._offsets) else None

    def before(self, at: float) -> int:
        """An offset before which nothing was written at `at` or later."""
        place = bisect.bisect_left(self._at, at)
        return self._offsets[place - 1] if place else 0


def beside(log: Path) -> Path:
    """The file that has the times of a gathered log."""
    return log.with_suffix(".times")


def kept(log: Path) -> Written:
    """What is known of a gathered log; nothing where it was gathered without."""
    written = Written()
    try:
        lines = beside(log).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return written
    for line in lines:
        offset, _, at = line.partition(" ")
        try:
            written.add([(int(offset), float(at))])
        except ValueError:
            continue
    return written


def keep(log: Path, entries: Sequence[Entry]) -> None:
    """Add entries to what is known. Raises OSError."""
    with open(os.open(beside(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
        file.write("".join(f"{offset} {at:.3f}\n" for offset, at in entries))


def since(text: str, now: float) -> float:
    """`10m`, `2h30m`, `2026-12-01T09:30` (this machine's time zone, or Z) as a time. Raises InputError."""
    if text and re.fullmatch(f"(?:{_SPAN.pattern})+", text):
        return now - sum(float(number) * _SECONDS[unit] for number, unit in _SPAN.findall(text))
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise InputError(
            f"--since {text}: not a time", "write `90s`, `10m`, `2h30m`, `1d`, or a time as 2026-12-01T09:30"
        ) from None
