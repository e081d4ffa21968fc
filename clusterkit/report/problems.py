"""Errors as people read them: what happened, on which host, and what to do next."""

from __future__ import annotations

import json

from clusterkit.errors import ClusterkitError, FleetError, HostError, Interrupted
from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words


def show(error: ClusterkitError, *, as_json: bool = False, words: Words | None = None) -> None:
    """One line for the error and one for its hint; a fleet's errors are folded where they are equal."""
    if as_json:
        print(json.dumps(document(error)))
        return
    words = words or Words()
    if isinstance(error, FleetError):
        for message, hint, hosts in folded(error):
            words.insist(f"{fold(hosts)}: {message}", "red")
            _hint(words, hint)
    place = (
        f"{error.host}: " if isinstance(error, HostError) and not error.message.startswith(error.host) else ""
    )
    words.insist(f"error: {place}{error.message}", "red")
    if isinstance(error, Interrupted) and error.unfinished:
        words.insist(f"not finished: {fold(error.unfinished)}", "yellow")
    _hint(words, error.hint)


def document(error: ClusterkitError) -> dict[str, object]:
    """The error as JSON: the keys of schema 1 for a command that could not give its own document."""
    result: dict[str, object] = {
        "schema": 1,
        "ok": False,
        "exit_code": int(error.exit_code),
        "error": error.message,
        "hint": error.hint,
    }
    if isinstance(error, FleetError):
        result["hosts"] = {
            host: {"error": each.message, "hint": each.hint} for host, each in error.failures.items()
        }
    if isinstance(error, Interrupted):
        result["unfinished"] = list(error.unfinished)
    return result


def folded(error: FleetError) -> list[tuple[str, str, list[str]]]:
    """Each different message once, with its hint and the hosts that share it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for host, each in error.failures.items():
        message = (
            each.message.removeprefix(f"{host}: ").replace(host, "HOST")
            if host in each.message
            else each.message
        )
        groups.setdefault((message, each.hint.replace(host, "HOST")), []).append(host)
    result = []
    for (message, hint), hosts in groups.items():
        name = hosts[0] if len(hosts) == 1 else "HOST"
        result.append((message.replace("HOST", name), hint.replace("HOST", name), hosts))
    return result


def _hint(words: Words, hint: str) -> None:
    if hint:
        words.insist(f"  → {hint}")
