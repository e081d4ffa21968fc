"""Which folders are the big ones, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def biggest(files: Iterable[tuple[str, int]], count: int = 4) -> list[tuple[str, int]]:
    """The folders and files that hold the most bytes, biggest first; a folder's name ends in a slash.

    Of a folder in which one part holds nearly all, that part is named: `runs/old/` says more than `runs/`.
    """
    sizes = list(files)
    shares = _shares(sizes, "")
    named = sorted(
        ((_deepest(sizes, name, size), size) for name, size in shares.items()), key=lambda each: -each[1]
    )
    return named[:count]


def human(size: int) -> str:
    """Bytes for a person, in powers of 1000: `12.3 GB`."""
    amount, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.1f} {unit}"


def _shares(files: Iterable[tuple[str, int]], base: str) -> dict[str, int]:
    """Bytes of each folder and file directly in `base` (which ends in a slash, or is empty)."""
    shares: dict[str, int] = defaultdict(int)
    for path, size in files:
        if path.startswith(base):
            first, slash, _ = path[len(base) :].partition("/")
            shares[base + first + slash] += size
    return shares


def _deepest(files: Iterable[tuple[str, int]], name: str, size: int) -> str:
    """The deepest folder in `name` that still holds 90 % of its bytes."""
    files = list(files)
    while name.endswith("/"):
        part, amount = max(_shares(files, name).items(), key=lambda each: each[1])
        if amount < 0.9 * size or not part.endswith("/"):
            break
        name = part
    return name
