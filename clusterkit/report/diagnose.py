"""Why a run failed, as people read it: the reason, its evidence, what to do, and who merely followed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from clusterkit.errors import named
from clusterkit.report.folding import fold
from clusterkit.report.status import end_of
from clusterkit.runs.selection import fold_ranks

_WHERE = {
    "rank": "its log",
    "launcher": "the launcher's log",
    "kernel": "the kernel log",
    "end": "how it ended",
    "reason": "what ended the run",
}
_FOLLOWED = {
    "lost a peer": "lost the connection to a rank that was gone",
    "stopped": "ended with the job (SIGTERM or SIGKILL by clusterkit or the launcher)",
    "failed too": "failed by themselves, later",
}
# The others are in the JSON.
_MOST_KNOWN = 3


def diagnosis_lines(document: Mapping[str, Any]) -> list[str]:
    """The diagnosis in paragraphs."""
    if document["state"] not in ("failed", "lost"):
        return [document["summary"], *_missing(document)]
    lines = [f"run {document['run_id']} {document['state']}: {document['reason']}"]
    for number, known in enumerate(document["known"][:_MOST_KNOWN]):
        lines += ["", *_known(known, also=number > 0)]
        lines += _gpu_processes(document["gpu_processes"]) if number == 0 else []
    if not document["known"]:
        lines += ["", *_unknown(document)]
    lines += _root(document["root"])
    lines += _others(document)
    return [*lines, *_missing(document)]


def short_lines(known: Mapping[str, Any] | None, run_id: str) -> list[str]:
    """What a launch says about its failure: what is plain, or who can say more."""
    if known is None:
        return [f"`clusterkit diagnose {run_id}` looks for the reason, on the hosts too"]
    return [f"diagnosis ({known['rule']}): {known['meaning']}", f"  → {known['cure']}"]


def _known(known: Mapping[str, Any], *, also: bool) -> list[str]:
    evidence = known["evidence"]
    times = f", {evidence['count']} times" if evidence["count"] > 1 else ""
    where = "" if evidence["where"] in ("end", "reason") else f" in {_WHERE[evidence['where']]}{times}"
    return [
        f"{'also ' if also else ''}{known['rule']}: {known['meaning']}",
        f"  {_whose(evidence)}{where}: {evidence['line']}",
        f"  → {known['cure']}",
    ]


def _unknown(document: Mapping[str, Any]) -> list[str]:
    """No rule fits: that is said, and where to begin."""
    lines = ["this is no failure that clusterkit knows (docs/diagnose.md tells how to add one)"]
    first = document["first_error"]
    if first:
        lines += [f"the first error of {_whose(first)}:", f"  {first['line']}"]
    return lines


def _gpu_processes(holders: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"  on {each['host']} pid {each['pid']} of {each['user'] or 'somebody'} computes on a GPU now"
        f" ({'?' if each['memory_mib'] is None else each['memory_mib']} MiB): {each['command'][:120]}"
        for each in holders
    ]


def _root(root: Mapping[str, Any] | None) -> list[str]:
    if root is None:
        return []
    ended = end_of(root)
    heading = f"first to fail: {_whose(root)}{f', {ended}' if ended else ''}"
    at = f" at {root['ended_at'][11:23]} UTC" if root["ended_at"] else ""
    shown = root["traceback"] or root["lines"]
    what = "traceback" if root["traceback"] else "last lines"
    lines = ["", f"{heading}{at}"]
    return [*lines, f"{what}:", *(f"  {line}" for line in shown)] if shown else lines


def _others(document: Mapping[str, Any]) -> list[str]:
    """Who followed and why, ranks with the same reason in one line."""
    everybody = sorted([*document["followed"], *document["failed_too"]], key=lambda each: each["why"])
    lines = []
    for why, group in groupby(everybody, key=lambda each: str(each["why"])):
        members = list(group)
        example = next((each["line"] for each in members if each["line"]), "")
        lines.append(f"{_names(members)} {_FOLLOWED[why]}" + (f": {example[:160]}" if example else ""))
    return ["", *lines] if lines else []


def _names(members: Iterable[Mapping[str, Any]]) -> str:
    each = list(members)
    ranks = [one["rank"] for one in each if one["rank"] is not None]
    servers = [one["server"] for one in each if one["rank"] is None]
    parts = [f"rank{'s'[: len(ranks) != 1]} {fold_ranks(ranks)}"] if ranks else []
    parts += [f"server{'s'[: len(servers) != 1]} {fold_ranks(servers)}"] if servers else []
    return f"{' and '.join(parts)} on {fold(one['host'] for one in each)}"


def _missing(document: Mapping[str, Any]) -> list[str]:
    """What could not be read: the diagnosis is made of the rest."""
    lines = [f"not read: {words}" for words in document["unread"]]
    lines += [f"not asked: {named(host, error)}" for host, error in document["away"].items()]
    return ["", *lines] if lines else []


def _whose(thing: Mapping[str, Any]) -> str:
    if thing.get("rank") is not None:
        return f"rank {thing['rank']} on {thing['host']}"
    if thing.get("server") is not None:
        return f"server {thing['server']} on {thing['host']}"
    return str(thing["host"])
