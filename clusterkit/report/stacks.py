"""Stacks of many ranks as people read them: who stands where, the odd one named, then the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clusterkit.report.folding import fold
from clusterkit.runs import processes
from clusterkit.runs.frames import Frame, Group, Thread
from clusterkit.runs.record import RunRecord
from clusterkit.runs.selection import fold_ranks
from clusterkit.stacks import Stacks


def lines(record: RunRecord, stacks: Stacks, *, all_threads: bool) -> list[str]:
    """A part for each place at which ranks stand, then those without a stack, then all in one line."""
    shown: list[str] = []
    for group in stacks.groups:
        shown.append(f"{_named(group.processes)} ({_hosts(record, group.processes)}): {group.where}")
        for thread in group.threads if all_threads else (group.main,):
            shown += [f"  {thread.heading}"] if all_threads else []
            shown += [f"  {line}" for line in _calls(thread)]
        shown.append("")
    for process, problem in stacks.silent.items():
        shown.append(f"{processes.words(process)} ({_hosts(record, [process])}): no stack: {problem}")
    return [*shown, summary(stacks)]


def summary(stacks: Stacks) -> str:
    """`255 ranks in all_reduce, from train.py:88; rank 37 in dataset.py:88 (load)`."""
    parts = [f"{_counted(group)} in {group.where}" for group in stacks.groups]
    if stacks.silent:
        parts.append(f"no stack of {_named(list(stacks.silent))}")
    return "; ".join(parts) or "no rank runs"


def document(record: RunRecord, stacks: Stacks) -> dict[str, Any]:
    """The same as JSON, schema 1, with every thread."""
    return {
        "schema": 1,
        "ok": not stacks.failures,
        "run_id": stacks.run_id,
        "groups": [
            {
                "ranks": [each for each in group.processes if each >= 0],
                "servers": [
                    number
                    for each in group.processes
                    if (number := processes.server_number(each)) is not None
                ],
                "hosts": list(dict.fromkeys(record.node_of(each).host for each in group.processes)),
                "where": group.where,
                "frames": [_frame(frame) for frame in group.main.frames],
                "threads": [
                    {"heading": thread.heading, "frames": [_frame(frame) for frame in thread.frames]}
                    for thread in group.threads
                ],
            }
            for group in stacks.groups
        ],
        "silent": [
            {**processes.keys(process), "host": record.node_of(process).host, "problem": problem}
            for process, problem in stacks.silent.items()
        ],
        "failures": {host: error.message for host, error in stacks.failures.items()},
    }


def _frame(frame: Frame) -> dict[str, Any]:
    return {"file": frame.file, "line": frame.line, "function": frame.function}


def _calls(thread: Thread) -> list[str]:
    """The innermost first."""
    width = max((len(frame.function) for frame in thread.frames), default=0)
    return [
        f"{frame.function.ljust(width)}  {frame.file.partition('-packages/')[2] or frame.file}:{frame.line}"
        for frame in thread.frames
    ]


def _counted(group: Group) -> str:
    if len(group.processes) == 1:
        return processes.words(group.processes[0])
    kinds = {"server" if each < 0 else "rank" for each in group.processes}
    kind = kinds.pop() if len(kinds) == 1 else "processe"
    return f"{len(group.processes)} {kind}s"


def _named(chosen: Sequence[int]) -> str:
    ranks = [each for each in chosen if each >= 0]
    servers = sorted(number for each in chosen if (number := processes.server_number(each)) is not None)
    words = [f"rank{'s'[: len(ranks) != 1]} {fold_ranks(ranks)}"] if ranks else []
    words += [f"server{'s'[: len(servers) != 1]} {fold_ranks(servers)}"] if servers else []
    return " and ".join(words)


def _hosts(record: RunRecord, chosen: Sequence[int]) -> str:
    return fold(record.node_of(each).host for each in chosen)
