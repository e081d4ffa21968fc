"""What was seen between the hosts, and how they have voted, as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.between import Matrix, VoteEntry
from clusterkit.preflight import Finding
from clusterkit.report.checks import Line
from clusterkit.report.folding import fold
from clusterkit.report.status import table
from clusterkit.smoke import Smoke

_FINDING_COLOURS = {"ok": None, "skipped": None, "warning": "yellow", "pending": "yellow"}


def finding_lines(findings: Sequence[Finding]) -> list[Line]:
    """What was seen between the hosts: what is well in a line each, what is not with its hint.

    Where many hosts meet the same at one host, they are one line; so is all that a pending change will open.
    """
    alike: dict[tuple[str, str, str, str], list[Finding]] = {}
    for each in findings:
        if each.status != "pending":
            alike.setdefault((each.name, each.status, each.to, each.detail), []).append(each)
    lines = _waiting_lines([each for each in findings if each.status == "pending"])
    for (name, status, to, detail), group in alike.items():
        source = fold(each.source for each in group if each.source)
        place = " → ".join([source, *([to] if to else [])]) if source or to else ""
        lines.append(
            (f"{place}{': ' if place else ''}{name} {status}: {detail}", _FINDING_COLOURS.get(status, "red"))
        )
        if group[0].hint and status not in ("ok", "skipped"):
            others = "; so for the others" if len({each.hint for each in group}) > 1 else ""
            lines.append((f"  → {group[0].hint}{others}", None))
    return lines


def _waiting_lines(findings: Sequence[Finding]) -> list[Line]:
    """Pairs that wait for a change: the change has its own lines, and the pairs are as many as one likes."""
    lines: list[Line] = []
    for name in dict.fromkeys(each.name for each in findings):
        own = [each for each in findings if each.name == name]
        pairs = f"{len(own)} ordered pair{'s'[: len(own) != 1]}"
        place = f"{fold(each.source for each in own)} → {fold(each.to for each in own)}"
        verb = "waits" if len(own) == 1 else "wait"
        lines.append((f"{place}: {name} pending: {pairs} {verb} for the pending firewall change", "yellow"))
    return lines


def vote_lines(votes: Sequence[VoteEntry]) -> list[Line]:
    """Who is odd, with both values."""
    lines: list[Line] = []
    for entry in votes:
        if entry.status in ("ok", "skipped"):
            continue
        by_value: dict[str, list[str]] = {}
        for host, value in entry.odd.items():
            by_value.setdefault(value, []).append(host)
        odd = ", ".join(f"{fold(hosts)} ({value})" for value, hosts in by_value.items())
        text = f"{entry.fact} {_verb(entry)} {odd}{_others(entry)}"
        lines.append((text, "red" if entry.status == "failed" else "yellow"))
        if entry.hint:
            lines.append((f"  → {entry.hint}", None))
    return lines


def _verb(entry: VoteEntry) -> str:
    if entry.unique:
        return "is the same on"
    return "is odd on" if entry.majority is not None or entry.expected else "differs:"


def _others(entry: VoteEntry) -> str:
    """What is right, as the groups of the inventory or most hosts have it."""
    if entry.expected:
        return "; " + ", ".join(f"most of {group} have {value}" for group, value in entry.expected.items())
    return f"; the others have {entry.majority}" if entry.majority is not None else ""


def matrix_lines(matrix: Matrix | None) -> list[str]:
    """Bandwidth from each host (rows) to each other (columns), in Gbit/s."""
    if matrix is None:
        return []
    rows = [["Gbit/s", *matrix.hosts]]
    for host, rates in zip(matrix.hosts, matrix.as_rows(), strict=True):
        rows.append([host, *("-" if rate is None else f"{rate * 8 / 1e9:.2f}" for rate in rates)])
    return table(rows)


def smoke_lines(smoke: Smoke | None) -> list[str]:
    """How the all-reduce went."""
    if smoke is None or smoke.seconds is None or smoke.bus_bytes_per_s is None:
        return []
    return [
        f"smoke: all-reduce over {smoke.world_size} ranks in {smoke.seconds * 1000:.1f} ms, "
        f"bus bandwidth {smoke.bus_bytes_per_s / 1e9:.2f} GB/s"
    ]
