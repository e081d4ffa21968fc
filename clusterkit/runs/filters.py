"""Which runs of a list are meant: by state, by age, by how many are newer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from clusterkit.errors import InputError
from clusterkit.runs.record import ENDED, RunRecord

STATES = ("planned", "staging", "starting", "running", "stopping", *sorted(ENDED))
_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(text: str) -> float:
    """A time span such as `90min`, `12h`, `7d` or `2w` in seconds. Raises InputError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
    if not found or found[2] not in _UNITS:
        raise InputError(f"`{text}` is not a time span", "write for example 90min, 12h, 7d or 2w")
    return float(found[1]) * _UNITS[found[2]]


def since(text: str, now: float) -> float:
    """The time that `--since` means, in Unix seconds: a span before `now`, or a date, in UTC if it says
    nothing else. Raises InputError."""
    if re.fullmatch(r"\d{4}-.*", text.strip()):
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise InputError(f"`{text}` is not a date", "write 2026-11-30, or 2026-11-30T08:00") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    return now - seconds(text)


def states(text: str | None) -> frozenset[str] | None:
    """The states that `--state running,failed` names; None for all. Raises InputError."""
    if text is None:
        return None
    wanted = {word.strip() for word in text.split(",")}
    if unknown := sorted(wanted - set(STATES)):
        raise InputError(f"--state {unknown[0]}: there is no such state", f"states are {', '.join(STATES)}")
    return frozenset(wanted)


def fitting(
    records: Iterable[RunRecord], wanted: frozenset[str] | None, after: float | None
) -> Iterable[RunRecord]:
    """Those in one of the states, started at `after` (Unix seconds) or later."""
    return (
        record
        for record in records
        if (wanted is None or record.state in wanted) and (after is None or record.created_at >= after)
    )


def beyond(records: Sequence[RunRecord], now: float, older_than: float | None, keep: int) -> list[RunRecord]:
    """The runs that are neither among the `keep` newest nor younger than `older_than` seconds.

    `records` are sorted, the newest first.
    """
    return [record for record in records[keep:] if older_than is None or now - record.created_at > older_than]
