"""Verdicts of checks: the exceptions by name, what is as it should be in one line."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.report.folding import fold
from clusterkit.steps import Verdict

_COLOURS = {"failed": "red", "unknown": "yellow", "warning": "yellow", "manual": "red", "pending": "yellow"}


def exceptions(verdicts: Sequence[Verdict]) -> list[tuple[str, str | None]]:
    """Lines (with a colour) for everything that is not ok, equal ones folded over hosts; hints under them."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.status not in ("ok", "skipped"):
            groups.setdefault((verdict.status, verdict.name, verdict.message, verdict.hint), []).append(
                verdict.host
            )
    lines: list[tuple[str, str | None]] = []
    for (status, name, detail, hint), hosts in groups.items():
        words = f"{name} {status}: {detail}" if detail else f"{name} {status}"
        lines.append((f"{fold(hosts)}: {words}", _COLOURS.get(status)))
        if hint:
            lines.append((f"  → {hint}", None))
    return lines
