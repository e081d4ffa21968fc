"""A preflight as people and programs read it: folded lines, the exceptions by name, a line that counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clusterkit import steps
from clusterkit.between import Matrix
from clusterkit.errors import FleetError
from clusterkit.preflight import Reading
from clusterkit.proving import Result
from clusterkit.report import between, changes, checks, problems
from clusterkit.report.checks import Line
from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words
from clusterkit.smoke import Smoke

_ORDER = ("failed", "unknown", "manual", "pending", "changed", "warning", "ok", "skipped")
_WORDS = {
    "pending": ("1 change pending", "{} changes pending"),
    "changed": ("1 thing changed", "{} things changed"),
    "manual": ("1 to do by hand", "{} to do by hand"),
    "warning": ("1 warning", "{} warnings"),
    "failed": ("1 failed", "{} failed"),
    "unknown": ("1 unknown", "{} unknown"),
}


@dataclass(frozen=True)
class Details:
    """How much is shown: what is and what should be, the commands of pending changes, every single check."""

    diff: bool = False
    commands: bool = False
    everything: bool = False


def host_lines(reading: Reading) -> list[Line]:
    """`gpu[01-03]  ok  23 checks`: hosts with the same worst status folded, then those without an answer."""
    groups: dict[tuple[str, int], list[str]] = {}
    for host in dict.fromkeys(verdict.host for verdict in reading.verdicts):
        own = [verdict for verdict in reading.verdicts if verdict.host == host]
        worst = min((verdict.status for verdict in own), key=_ORDER.index)
        asked = sum(verdict.status != "skipped" for verdict in own)
        groups.setdefault((worst if worst != "skipped" else "ok", asked), []).append(host)
    colours = {"ok": "green", "changed": "green", "warning": "yellow", "pending": "yellow"}
    lines: list[Line] = [
        (f"{fold(hosts)}  {status}  {asked} check{'s'[: asked != 1]}", colours.get(status, "red"))
        for (status, asked), hosts in groups.items()
    ]
    for place, message, hint in problems.parts(FleetError(reading.unreachable, "reading the hosts")):
        lines.append((f"{place}  unreachable  {message}", "red"))
        if hint:
            lines.append((f"  → {hint}", None))
    return lines


def problem_lines(reading: Reading) -> list[Line]:
    """Which hosts cannot take part in a job, and why; why the others do not make up one."""
    lines: list[Line] = []
    for place, message, hint in problems.parts(FleetError(reading.unable, "planning")):
        lines.append((f"{place}: cannot take part in a job: {message}", "red"))
        if hint:
            lines.append((f"  → {hint}", None))
    if reading.problem:
        lines.append((f"no job can be planned: {reading.problem}", "red"))
        lines += [(f"  → {reading.hint}", None)] if reading.hint else []
    return lines


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
    unable = len(result.reading.unable)
    if unable:
        parts.append(f"{unable} host{'s'[: unable != 1]} cannot take part in a job")
    if result.reading.problem:
        parts.append("no job can be planned")
    asked = counted.get("ok", 0)
    return ", ".join(parts) if parts else "nothing was checked" if not asked else _all_ok(asked)


def _all_ok(asked: int) -> str:
    return f"all {asked} checks are ok" if asked > 1 else "1 check is ok"


def counts(result: Result) -> dict[str, int]:
    """How many verdicts and findings there are of each status."""
    return steps.counts(result.statuses)


def show(words: Words, result: Result, details: Details) -> None:
    """Folded hosts, exceptions with hints, findings between the hosts, and the line that counts."""
    reading, proofs = result.reading, result.proofs
    if details.everything:
        for line, colour in checks.everything(reading.verdicts):
            words.insist(line, colour)
        words.insist("")
    for line, colour in (
        *host_lines(reading),
        *changes.exceptions(reading.verdicts, diff=details.diff, commands=details.commands),
        *checks.told(reading.verdicts),
        *problem_lines(reading),
        *between.vote_lines(proofs.votes),
        *between.finding_lines(proofs.findings),
    ):
        words.insist(line, colour)
    for text in (*between.matrix_lines(proofs.bandwidth), *between.smoke_lines(proofs.smoke)):
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
        "problem": _problem(reading),
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


def _problem(reading: Reading) -> str:
    """Everything that keeps the hosts from making up one job, in a sentence; "" if nothing does."""
    unable = [text for text, _ in problems.folded(FleetError(reading.unable, "planning"))]
    return "; ".join([*unable, *([reading.problem] if reading.problem else [])])


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
