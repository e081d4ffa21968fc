"""A preflight as people and programs read it: folded lines, the exceptions by name, a line that counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clusterkit import steps
from clusterkit.between import Matrix, VoteEntry
from clusterkit.preflight import Finding, Reading
from clusterkit.proving import Result
from clusterkit.report import checks
from clusterkit.report.folding import fold
from clusterkit.report.status import table
from clusterkit.report.terminal import Words
from clusterkit.reset import Undoing
from clusterkit.smoke import Smoke
from clusterkit.steps import Verdict
from clusterkit.steps.engine import in_words

_ORDER = ("failed", "unknown", "manual", "pending", "changed", "warning", "ok", "skipped")
_WORDS = {
    "pending": ("1 change pending", "{} changes pending"),
    "changed": ("1 thing changed", "{} things changed"),
    "manual": ("1 to do by hand", "{} to do by hand"),
    "warning": ("1 warning", "{} warnings"),
    "failed": ("1 failed", "{} failed"),
    "unknown": ("1 unknown", "{} unknown"),
}


def host_lines(reading: Reading) -> list[tuple[str, str | None]]:
    """`gpu[01-03]  ok  23 checks`: hosts with the same worst status folded, then those without an answer."""
    groups: dict[tuple[str, int], list[str]] = {}
    for host in dict.fromkeys(verdict.host for verdict in reading.verdicts):
        own = [verdict for verdict in reading.verdicts if verdict.host == host]
        worst = min((verdict.status for verdict in own), key=_ORDER.index)
        asked = sum(verdict.status != "skipped" for verdict in own)
        groups.setdefault((worst if worst != "skipped" else "ok", asked), []).append(host)
    colours = {"ok": "green", "changed": "green", "warning": "yellow", "pending": "yellow"}
    lines: list[tuple[str, str | None]] = [
        (f"{fold(hosts)}  {status}  {asked} checks", colours.get(status, "red"))
        for (status, asked), hosts in groups.items()
    ]
    gone: dict[tuple[str, str], list[str]] = {}
    for host, error in reading.unreachable.items():
        gone.setdefault((error.message.removeprefix(f"{host} "), error.hint), []).append(host)
    for (message, hint), hosts in gone.items():
        lines.append((f"{fold(hosts)}  unreachable  {message}", "red"))
        if hint:
            lines.append((f"  → {hint}", None))
    return lines


def plan_lines(reading: Reading, diff: bool) -> list[str]:
    """What would be changed, step by step, hosts with the same change folded; with `diff` the lines too."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for verdict in reading.verdicts:
        if verdict.status == "pending":
            groups.setdefault((verdict.name, verdict.message, verdict.fix), []).append(verdict.host)
    lines = []
    for (name, message, fix), hosts in groups.items():
        lines.append(f"{fold(hosts)}: {name}: {message}")
        if diff:
            lines += [f"    {line}" for text in fix for line in text.splitlines()]
    return lines


def diff_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """`key: actual → desired` for everything that differs."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for verdict in verdicts:
        keys = tuple(
            f"{key}: {in_words(verdict.actual.get(key))} → {in_words(verdict.desired.get(key))}"
            for key in verdict.changed_keys
        )
        # What has been changed is told with its check.
        if keys and verdict.status != "changed":
            groups.setdefault((verdict.name, keys), []).append(verdict.host)
    return [f"{fold(hosts)}: {name}: {line}" for (name, keys), hosts in groups.items() for line in keys]


_FINDING_COLOURS = {"ok": None, "skipped": None, "warning": "yellow", "pending": "yellow"}


def finding_lines(findings: Sequence[Finding]) -> list[tuple[str, str | None]]:
    """What was seen between the hosts: what is well in a line each, what is not with its hint.

    Where many hosts meet the same at one host, they are one line.
    """
    alike: dict[tuple[str, str, str, str], list[Finding]] = {}
    for each in findings:
        alike.setdefault((each.name, each.status, each.to, each.detail), []).append(each)
    lines: list[tuple[str, str | None]] = []
    for (name, status, to, detail), group in alike.items():
        source = fold(each.source for each in group if each.source)
        place = " → ".join([source, *([to] if to else [])]) if source or to else ""
        lines.append(
            (f"{place}{': ' if place else ''}{name} {status}: {detail}", _FINDING_COLOURS.get(status, "red"))
        )
        if group[0].hint and status not in ("ok", "skipped"):
            lines.append((f"  → {group[0].hint}", None))
    return lines


def vote_lines(votes: Sequence[VoteEntry]) -> list[tuple[str, str | None]]:
    """Who is odd, with both values."""
    lines: list[tuple[str, str | None]] = []
    for entry in votes:
        if entry.status in ("ok", "skipped"):
            continue
        by_value: dict[str, list[str]] = {}
        for host, value in entry.odd.items():
            by_value.setdefault(value, []).append(host)
        others = f"; the others have {entry.majority}" if entry.majority is not None else ""
        what = "is the same on" if entry.unique else "is odd on"
        odd = ", ".join(f"{fold(hosts)} ({value})" for value, hosts in by_value.items())
        lines.append((f"{entry.fact} {what} {odd}{others}", "red" if entry.status == "failed" else "yellow"))
        if entry.hint:
            lines.append((f"  → {entry.hint}", None))
    return lines


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


def summary(result: Result) -> str:
    """The line that counts: what is wrong, or that everything is as it should be."""
    counted = counts(result)
    # What is closed between hosts until a change is made is no change of its own.
    waiting = sum(each.status == "pending" for each in result.proofs.findings)
    if "pending" in counted:
        counted["pending"] -= waiting
    parts = [
        _WORDS[status][0] if counted[status] == 1 else _WORDS[status][1].format(counted[status])
        for status in _ORDER
        if counted.get(status) and status in _WORDS
    ]
    gone = len(result.reading.unreachable)
    if gone:
        parts.append(f"{gone} host{'s'[: gone != 1]} unreachable")
    asked = counted.get("ok", 0)
    return ", ".join(parts) if parts else f"all {asked} checks are ok"


def counts(result: Result) -> dict[str, int]:
    """How many verdicts and findings there are of each status."""
    return steps.counts(result.statuses)


def show(words: Words, result: Result, *, diff: bool) -> None:
    """Folded hosts, exceptions with hints, findings between the hosts, and the line that counts."""
    for line, colour in host_lines(result.reading):
        words.insist(line, colour)
    for line, colour in checks.exceptions(result.reading.verdicts):
        words.insist(line, colour)
    if result.reading.problem:
        words.insist(f"the hosts do not make up one job: {result.reading.problem}", "red")
    if diff:
        for text in diff_lines(result.reading.verdicts):
            words.insist(text)
    proofs = result.proofs
    for line, colour in (*vote_lines(proofs.votes), *finding_lines(proofs.findings)):
        words.insist(line, colour)
    for text in (*matrix_lines(proofs.bandwidth), *smoke_lines(proofs.smoke)):
        words.insist(text)
    words.insist("")
    words.insist(summary(result), "bold")


def document(result: Result, strict: bool) -> dict[str, Any]:
    """The same as JSON, schema 1."""
    reading = result.reading
    code = int(result.exit_code(strict))
    hosts: dict[str, Any] = {}
    for host in dict.fromkeys(verdict.host for verdict in reading.verdicts):
        own = [verdict.as_json() for verdict in reading.verdicts if verdict.host == host]
        hosts[host] = {"reachable": True, "error": "", "checks": own}
    for host, error in reading.unreachable.items():
        hosts[host] = {"reachable": False, "error": error.message, "hint": error.hint, "checks": []}
    return {
        "schema": 1,
        "ok": code == 0,
        "exit_code": code,
        "elapsed_s": round(result.elapsed_s, 3),
        "problem": reading.problem,
        "hosts": hosts,
        "between": [
            {
                "name": each.name,
                "status": each.status,
                "from": each.source,
                "to": each.to,
                "detail": each.detail,
                "hint": each.hint,
            }
            for each in result.proofs.findings
        ],
        "vote": [entry.as_json() for entry in result.proofs.votes],
        "bandwidth": _matrix_document(result.proofs.bandwidth),
        "smoke": _smoke_document(result.proofs.smoke),
        "summary": counts(result),
    }


def _matrix_document(matrix: Matrix | None) -> dict[str, Any] | None:
    """Bytes per second from each host (rows) to each other, None where nothing was measured."""
    return {"hosts": list(matrix.hosts), "bytes_per_s": matrix.as_rows()} if matrix else None


def _smoke_document(smoke: Smoke | None) -> dict[str, Any] | None:
    if smoke is None:
        return None
    return {
        "world_size": smoke.world_size,
        "seconds": smoke.seconds,
        "bus_bytes_per_s": smoke.bus_bytes_per_s,
    }


def undo_lines(undoing: Undoing) -> list[str]:
    """What would be taken back: the commands of each step, hosts with the same ones folded."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for host in undoing.hosts:
        for name, lines in undoing.lines[host].items():
            groups.setdefault((name, tuple(lines)), []).append(host)
    shown = []
    for (name, lines), hosts in groups.items():
        shown.append(f"{fold(hosts)}: {name}")
        shown += [f"    {line}" for text in lines for line in text.splitlines()]
    return shown
