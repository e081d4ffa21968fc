"""How far each rank has come: the end of its log, in the formats that Paddle's suites print. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# PaddleDetection prints `Epoch: [0] [ 20/1000]`, tqdm `| 20/1000 [`; all others name what they count:
# `global_step: 20` (PaddleOCR, PaddleNLP), `[Iter: 20/1000]` (PaddleClas), `iter: 20/1000` (PaddleSeg),
# `step 20/1000` (paddle.Model.fit).
_STEPS = (
    re.compile(r"Epoch: \[\d+\] \[ *(\d+)/(\d+)\]"),
    re.compile(
        r"(?:^|[^a-z])(?:step|iter|iteration|batch)\s*[:=#]?\s*\[?\s*(\d+)(?![\d.])\s*(?:/\s*(\d+))?", re.I
    ),
    re.compile(r"\|\s*(\d+)/(\d+) \["),
)
_EPOCH = re.compile(r"(?:^|[^a-z])epoch\W{0,4}(\d+)", re.I)


@dataclass(frozen=True)
class Progress:
    """The step seen last, out of how many, and the epoch; None for what the line does not say."""

    step: int | None = None
    steps: int | None = None
    epoch: int | None = None


def of(tail: str) -> Progress:
    """The progress in the last line that tells any; a progress bar's line ends with a carriage return."""
    for line in reversed(re.split(r"[\r\n]+", tail)):
        for pattern in _STEPS:
            if found := pattern.search(line):
                epoch = _EPOCH.search(line)
                return Progress(
                    int(found[1]), int(found[2]) if found[2] else None, int(epoch[1]) if epoch else None
                )
    return Progress()


def added(document: Mapping[str, Any], states: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The status document with what a living run's nodes say of this moment (`live` of their states)."""
    live = {host: state.get("live") or {} for host, state in states.items()}
    logs = {rank: log for each in live.values() for rank, log in (each.get("logs") or {}).items()}
    started = _started(states, "rank")
    ranks = [
        {
            **rank,
            **_said(logs.get(str(rank["rank"]), {}).get("tail", "")),
            "joined": started.get(rank["rank"], _has_run(rank)),
            "line_age_s": logs.get(str(rank["rank"]), {}).get("age_s"),
        }
        for rank in document["ranks"]
    ]
    started = _started(states, "server")
    servers = [
        {**server, "joined": started.get(server["server"], _has_run(server))}
        for server in document.get("servers", [])
    ]
    nodes = [{**node, "gpus": live.get(node["host"], {}).get("gpus")} for node in document["nodes"]]
    return {**document, "nodes": nodes, "ranks": ranks, "servers": servers}


def _started(states: Mapping[str, Mapping[str, Any]], kind: str) -> dict[int, bool]:
    """Whether each rank or each server, by its number, has started; those that some host tells of."""
    return {
        entry[kind]: entry.get("started_at") is not None
        for state in states.values()
        for entry in state.get(f"{kind}s", [])
    }


def of_gathered(document: Mapping[str, Any], tails: Mapping[int, str]) -> dict[str, Any]:
    """The same for a run that is over, out of the ends of its gathered logs.

    Where none was gathered, what was read on the host when somebody looked last still holds.
    """
    ranks = [
        {**_said(""), **rank, **_gathered(rank, tails), "joined": _has_run(rank), "line_age_s": None}
        for rank in document.get("ranks", [])
    ]
    servers = [{**server, "joined": _has_run(server)} for server in document.get("servers", [])]
    nodes = [{**node, "gpus": None} for node in document.get("nodes", [])]
    return {**document, "nodes": nodes, "ranks": ranks, "servers": servers}


def _gathered(rank: Mapping[str, Any], tails: Mapping[int, str]) -> dict[str, int | None]:
    return _said(tails[rank["rank"]]) if rank["rank"] in tails else {}


def _said(tail: str) -> dict[str, int | None]:
    progress = of(tail)
    return {"step": progress.step, "steps": progress.steps, "epoch": progress.epoch}


def _has_run(rank: Mapping[str, Any]) -> bool:
    return bool(rank["bytes"]) or rank["exit_code"] is not None or rank["signal"] is not None
