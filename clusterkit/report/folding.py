"""Many host names in a few characters, as cluster people write them: `gpu[01-03,05]`."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"^(.*?)(\d+)(\D*)$", re.DOTALL)


def fold(names: Iterable[str]) -> str:
    """The names, runs of numbers with the same text around them and the same padding put into one range."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    order: list[tuple[str, str, int] | str] = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.match(name)
        if match is None:
            order.append(name)
            continue
        prefix, digits, suffix = match.groups()
        # gpu9 and gpu10 belong together, gpu09 and gpu9 do not: only padded numbers have a width.
        key = (prefix, suffix, len(digits) if digits.startswith("0") and len(digits) > 1 else 0)
        if key not in groups:
            padded = next(
                (other for other in groups if other[:2] == key[:2] and other[2] == len(digits)), None
            )
            key = padded or key
        if key not in groups:
            groups[key] = []
            order.append(key)
        groups[key].append(int(digits))
    return ",".join(entry if isinstance(entry, str) else _range(entry, groups[entry]) for entry in order)


def _range(key: tuple[str, str, int], numbers: list[int]) -> str:
    prefix, suffix, width = key
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}d}{suffix}"
    parts: list[str] = []
    run: list[int] = []
    for number in [*sorted(numbers), None]:
        if run and number != run[-1] + 1:
            first, last = f"{run[0]:0{width}d}", f"{run[-1]:0{width}d}"
            parts.append(first if len(run) == 1 else f"{first}-{last}")
            run = []
        if number is not None:
            run.append(number)
    return f"{prefix}[{','.join(parts)}]{suffix}"
