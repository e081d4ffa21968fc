"""Verdicts of checks: the exceptions by name, what is as it should be in one line, or each by itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from clusterkit.report.folding import fold
from clusterkit.steps import Verdict
from clusterkit.steps.engine import in_words, key_in_words

K = TypeVar("K", bound=Hashable)
Line = tuple[str, str | None]

COLOURS = {
    "failed": "red",
    "manual": "red",
    "unknown": "yellow",
    "warning": "yellow",
    "pending": "yellow",
}


def exceptions(verdicts: Sequence[Verdict]) -> list[Line]:
    """Lines (with a colour) for everything that is not ok, equal ones folded over hosts; hints under them."""
    lines: list[Line] = []
    for hosts, each in folded(
        wrong(verdicts), lambda each: (each.status, each.name, each.message, each.hint)
    ):
        lines.append((headline(hosts, each), COLOURS.get(each.status)))
        lines += hint(each)
    return lines


def wrong(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those that are not as they should be, and what has been changed."""
    return [each for each in verdicts if each.status not in ("ok", "skipped")]


def told(verdicts: Iterable[Verdict]) -> list[Line]:
    """Why a check that people wonder about was skipped, hosts with the same reason folded."""
    skipped = [each for each in verdicts if each.status == "skipped" and each.told]
    return [(headline(hosts, each), None) for hosts, each in folded(skipped, lambda each: each.message)]


def everything(verdicts: Sequence[Verdict]) -> list[Line]:
    """Each check of each host with what was found, folded where it is the same; last what was skipped."""
    order = {name: number for number, name in enumerate(dict.fromkeys(each.name for each in verdicts))}
    asked = [each for each in verdicts if each.status != "skipped"]
    listed = sorted(asked, key=lambda each: order[each.name])
    lines: list[Line] = []
    for hosts, each in folded(listed, lambda each: (each.name, each.status, _found(each))):
        lines.append((headline(hosts, replace(each, message=_found(each))), COLOURS.get(each.status)))
    return lines + _skipped(verdicts)


def _skipped(verdicts: Iterable[Verdict]) -> list[Line]:
    """Checks that were skipped on the same hosts for the same reason share a line."""
    skipped = [each for each in verdicts if each.status == "skipped"]
    names: dict[tuple[str, str], list[str]] = {}
    for hosts, each in folded(skipped, lambda each: (each.name, each.message)):
        names.setdefault((fold(hosts), each.message), []).append(each.name)
    return [
        (f"{hosts}: skipped, since {reason}: {', '.join(checks)}", None)
        for (hosts, reason), checks in names.items()
    ]


def folded(verdicts: Iterable[Verdict], key: Callable[[Verdict], K]) -> list[tuple[list[str], Verdict]]:
    """The hosts of all verdicts with an equal key, and the first of these verdicts."""
    groups: dict[K, tuple[list[str], Verdict]] = {}
    for each in verdicts:
        groups.setdefault(key(each), ([], each))[0].append(each.host)
    return list(groups.values())


def headline(hosts: Sequence[str], verdict: Verdict) -> str:
    """`gpu[01-03]: NAME STATUS: what is wrong`."""
    words = f"{verdict.name} {verdict.status}"
    return f"{fold(hosts)}: {words}: {verdict.message}" if verdict.message else f"{fold(hosts)}: {words}"


def hint(verdict: Verdict) -> list[Line]:
    """What to do next, under a headline; nothing for what was skipped."""
    return [(f"  → {verdict.hint}", None)] if verdict.hint and verdict.status != "skipped" else []


def _found(verdict: Verdict) -> str:
    """What a check says; one that is ok says nothing but what it has read."""
    if verdict.message:
        return verdict.message
    return ", ".join(f"{key_in_words(key)} {in_words(value)}" for key, value in verdict.actual.items())
