"""What reset found, and what became of it, as people and programs read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterkit.errors import FleetError, HostError
from clusterkit.report import changes, problems
from clusterkit.report.checks import Line
from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words
from clusterkit.reset import Reset, Steps


def show(words: Words, result: Reset, *, plan: bool) -> None:
    """Who could not be asked, what is left and why, and a last line; with `plan` what would be done."""
    undoing, after = result.undoing, result.after
    lines = [*_gone(undoing.unreachable), *_unread(undoing.unread)]
    if plan and after is None and undoing.hosts:
        lines += [("would take back:", None), *((line, None) for line in changes.undo_lines(undoing))]
    lines += _folded(result.left, "{} is still there", "{} failed: {}")
    lines += _gone(result.lost)
    if after is not None:
        lines += _unread({host: why for host, why in after.unread.items() if host not in undoing.unread})
    if not undoing.hosts:
        where = " that could be looked at" if undoing.exit_code else ""
        lines.append((f"preflight has left nothing on the hosts{where}", None))
    elif result.taken_back:
        lines.append((f"taken back on {fold(result.taken_back)}", "green"))
    for line, colour in lines:
        words.insist(line, colour)


def document(result: Reset) -> dict[str, Any]:
    """The same as JSON, schema 1."""
    code = int(result.exit_code)
    return {
        "schema": 1,
        "ok": code == 0,
        "exit_code": code,
        "hosts": {
            **{host: _host(result, host) for host in result.undoing.lines},
            **{host: _silent(error) for host, error in result.undoing.unreachable.items()},
        },
    }


def _host(result: Reset, host: str) -> dict[str, Any]:
    lost, left, after = result.lost.get(host), result.left.get(host, {}), result.after
    unread = {**result.undoing.unread.get(host, {}), **(after.unread.get(host, {}) if after else {})}

    def status(name: str) -> str:
        if after is None:
            return "pending"
        if lost is not None or name in unread:
            return "unknown"
        return "failed" if name in left else "changed"

    steps = [
        {"name": name, "status": status(name), "commands": list(lines), "message": left.get(name, "")}
        for name, lines in result.undoing.lines[host].items()
    ]
    unseen = [
        {"name": name, "status": "unknown", "commands": [], "message": why}
        for name, why in unread.items()
        if name not in result.undoing.lines[host]
    ]
    error = {"error": lost.message, "hint": lost.hint} if lost else {"error": "", "hint": ""}
    return {"reachable": lost is None, **error, "steps": [*steps, *unseen]}


def _silent(error: HostError) -> dict[str, Any]:
    return {"reachable": False, "error": error.message, "hint": error.hint, "steps": []}


def _gone(errors: Mapping[str, HostError]) -> list[Line]:
    lines: list[Line] = []
    for place, message, hint in problems.parts(FleetError(errors, "reset")):
        lines.append((f"{place}: {message}", "red"))
        lines += [(f"  → {hint}", None)] if hint else []
    return lines


def _unread(unread: Steps) -> list[Line]:
    return _folded(unread, "{} could not be looked for", "{} could not be looked for: {}")


def _folded(found: Steps, plain: str, with_reason: str) -> list[Line]:
    """A line for each step and reason, the hosts with the same one folded."""
    groups: dict[tuple[str, str], list[str]] = {}
    for host, of_host in found.items():
        for name, why in of_host.items():
            groups.setdefault((name, why), []).append(host)
    return [
        (f"{fold(hosts)}: {(with_reason if why else plain).format(name, why)}", "red")
        for (name, why), hosts in groups.items()
    ]
