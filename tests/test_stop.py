"""What `stop` claims: a run is stopped when every host has said so, and not because it was asked to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import Unreachable
from clusterkit.remote.protocol import Result, Stream
from clusterkit.runs.record import NodeRecord, RunRecord, RunStore
from clusterkit.stop import stop

NODES = tuple(
    NodeRecord(f"gpu{n}", n, f"10.0.0.{n}", (n,), "python3", "/r", "/w", "/l", {}) for n in range(2)
)
RECORD = RunRecord("run-1", "inventory.ini", "train.py", (), 0.0, NODES, status={"state": "starting"})


class Host:
    """Answers `stop` and `state` of a run's agent; None stands for a host that does not answer."""

    def __init__(self, alias: str, stopped: Mapping[str, Any] | None) -> None:
        self.alias = alias
        self._stopped = stopped
        self.limits: dict[str, float] = {}

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        self.limits[doing] = timeout
        if self._stopped is None:
            raise Unreachable(self.alias, "tcp", f"{self.alias}: no answer", "is it up?")
        answer = self._stopped if " stop " in script else {"error": "never started"}
        return Result(0, json.dumps(answer).encode() + b"\n", b"")

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        pass


NOTHING_LEFT = {"stopped": True, "was": "dead", "killed": [], "left": []}
STUCK = {"stopped": False, "was": "running", "killed": [4711], "left": [4711]}


@pytest.mark.parametrize(
    ("answers", "state", "exit_code"),
    [
        ((NOTHING_LEFT, NOTHING_LEFT), "stopped", 143),
        ((None, None), "starting", None),
        ((None, NOTHING_LEFT), "starting", None),
        ((STUCK, NOTHING_LEFT), "starting", None),
    ],
    ids=["all say so", "none answers", "one does not answer", "processes are left"],
)
def test_a_run_is_stopped_when_every_host_says_so(
    tmp_path: Path, answers: tuple[Mapping[str, Any] | None, ...], state: str, exit_code: int | None
) -> None:
    store = RunStore(tmp_path)
    remotes = {node.host: Host(node.host, answer) for node, answer in zip(NODES, answers, strict=True)}
    result = stop(RECORD, remotes, store, grace=1, forks=2)
    assert (result.status["state"], result.status["exit_code"]) == (state, exit_code)
    assert store.load("run-1").status == result.status
    assert list(result.failures) == [f"gpu{n}" for n, answer in enumerate(answers) if answer is None]


def test_a_host_has_the_grace_and_the_timeout_to_answer(tmp_path: Path) -> None:
    remotes = {node.host: Host(node.host, NOTHING_LEFT) for node in NODES}
    stop(RECORD, remotes, RunStore(tmp_path), grace=5, forks=2, timeout=7)
    assert remotes["gpu0"].limits == {"stopping the run": 12, "reading the run's state": 7}
