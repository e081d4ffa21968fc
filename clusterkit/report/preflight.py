"""A preflight as people and programs read it: folded lines, the exceptions by name, a line that counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusterkit import steps
from clusterkit.preflight import Finding, Reading, Result
from clusterkit.report import checks
from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words
from clusterkit.steps import Verdict

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
            f"{key}: {verdict.actual.get(key)} → {verdict.desired.get(key)}" for key in verdict.changed_keys
        )
        if keys:
            groups.setdefault((verdict.name, keys), []).append(verdict.host)
    return [f"{fold(hosts)}: {name}: {line}" for (name, keys), hosts in groups.items() for line in keys]


def finding_lines(findings: Sequence[Finding]) -> list[tuple[str, str | None]]:
    """Everything between the hosts that is not as it should be."""
    lines: list[tuple[str, str | None]] = []
    for each in findings:
        if each.status in ("ok", "skipped"):
            continue
        place = f"{each.source} → {each.to}: " if each.source and each.to else ""
        lines.append(
            (
                f"{place}{each.name} {each.status}: {each.detail}",
                "yellow" if each.status == "warning" else "red",
            )
        )
        if each.hint:
            lines.append((f"  → {each.hint}", None))
    return lines


def summary(result: Result) -> str:
    """The line that counts: what is wrong, or that everything is as it should be."""
    counted = counts(result)
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
    found = steps.counts(result.reading.verdicts)
    for each in result.between:
        found[each.status] = found.get(each.status, 0) + 1
    return found


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
    for line, colour in finding_lines(result.between):
        words.insist(line, colour)
    words.insist("")
    words.insist(summary(result), "bold")


def document(result: Result, vote: Sequence[Mapping[str, Any]], strict: bool) -> dict[str, Any]:
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
            }
            for each in result.between
        ],
        "vote": list(vote),
        "summary": counts(result),
    }
