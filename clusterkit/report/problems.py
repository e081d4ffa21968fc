"""Errors as people read them: what happened, on which host, and what to do next."""

from __future__ import annotations

import json
import re

from clusterkit.errors import ClusterkitError, FleetError, HostError, Interrupted, apart, named
from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words

# Stands for a host's name while messages are compared; no message holds a NUL.
_HOST = "\0"


def show(error: ClusterkitError, *, as_json: bool = False, words: Words | None = None) -> None:
    """One line for the error and one for its hint; a fleet's errors are folded where they are equal."""
    if as_json:
        print(json.dumps(document(error)))
        return
    words = words or Words()
    if isinstance(error, FleetError):
        show_hosts(words, error)
    message = named(error.host, error.message) if isinstance(error, HostError) else error.message
    words.insist(f"error: {message}", "red")
    if isinstance(error, Interrupted) and error.unfinished:
        words.insist(f"not finished: {fold(error.unfinished)}", "yellow")
    _hint(words, error.hint)


def document(error: ClusterkitError) -> dict[str, object]:
    """The error as JSON: the keys of schema 1 for a command that could not give its own document."""
    from clusterkit.prepare import ChecksFailed

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
    if isinstance(error, ChecksFailed):
        result["hosts"] = {
            host: {
                "error": "; ".join(each.message for each in error.verdicts if each.host == host),
                "hint": error.hint,
                "checks": [each.as_json() for each in error.verdicts if each.host == host],
            }
            for host in dict.fromkeys(each.host for each in error.verdicts)
        }
    if isinstance(error, Interrupted):
        result["unfinished"] = list(error.unfinished)
    return result


def show_hosts(words: Words, error: FleetError) -> None:
    """Each different message of a fleet once, under the names of its hosts, with its hint."""
    for message, hint in folded(error):
        words.insist(message, "red")
        _hint(words, hint)


def folded(error: FleetError) -> list[tuple[str, str]]:
    """Each different message once, with its hosts in front, and its hint."""
    return [(f"{place}: {message}", hint) for place, message, hint in parts(error)]


def parts(error: FleetError) -> list[tuple[str, str, str]]:
    """The hosts, the message and the hint of each different message.

    Messages of remote/ begin with `HOST (ADDRESS): `. One host keeps its address, several share a line.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    places: dict[str, str] = {}
    for host, each in error.failures.items():
        places[host], message = apart(host, each.message)
        whole = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-])")
        groups.setdefault((whole.sub(_HOST, message), whole.sub(_HOST, each.hint)), []).append(host)
    result = []
    for (message, hint), hosts in groups.items():
        place, name = (places[hosts[0]], hosts[0]) if len(hosts) == 1 else (fold(hosts), "HOST")
        result.append((place, message.replace(_HOST, name), hint.replace(_HOST, name)))
    return result


def _hint(words: Words, hint: str) -> None:
    if hint:
        words.insist(f"  → {hint}")
