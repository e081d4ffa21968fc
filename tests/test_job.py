"""A job seen from here, its hosts played: nothing runs, no second passes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import ClusterkitError
from clusterkit.interrupts import Interrupts
from clusterkit.job import Job
from clusterkit.remote.protocol import Result, Stream
from clusterkit.runs.events import Event
from clusterkit.runs.record import NodeRecord, RunRecord, RunStore
from clusterkit.staging import Manner

NODES = tuple(
    NodeRecord(f"gpu{n}", n, f"10.0.0.{n}", (n,), "python3", "/r", "/w", "/r/logs", {}) for n in range(2)
)
RECORD = RunRecord("run-1", "inventory.ini", "train.py", (), 0.0, NODES)
LOG = b"the last line\n"


def state(node: int, name: str, phase: str, *, ended: bool = False) -> bytes:
    """A state frame of a node."""
    started = None if phase == "gate" else 10.0
    rank: dict[str, Any] = {
        "rank": node,
        "local_rank": 0,
        "started_at": started,
        "ended_at": None,
        "signal": None,
    }
    rank.update(exit_code=0 if ended else None, bytes=len(LOG), log="/r/logs/workerlog.0")
    peer = {"node_rank": 1, "alias": "gpu1", "joined": True, "registered": None, "state": None}
    said = {
        "node_rank": node,
        "state": name,
        "started_at": started,
        "ended_at": None,
        "launcher_exit": 0 if ended else None,
        "failure": None,
        "ranks": [rank],
        "decision": {"phase": phase, "outcome": "succeeded" if ended else None, "cause": None},
        "peers": [] if node else [peer],
    }
    return json.dumps({"frame": "state", "state": said}).encode() + b"\n"


def log(node: int) -> bytes:
    """A log frame with all that the node's rank wrote."""
    header = {"frame": "log", "file": str(node), "offset": 0, "size": len(LOG)}
    return json.dumps(header).encode() + b"\n" + LOG


END = b'{"frame": "end"}\n'


class Host:
    """Sends its pieces one by one; an event among them is waited for."""

    def __init__(self, alias: str, go: threading.Event, *pieces: bytes | threading.Event) -> None:
        self.alias = alias
        self._go = go
        self._pieces = list(pieces)

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        return self

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        raise NotImplementedError

    def send(self, data: bytes) -> None:
        if data == b'{"command": "go"}\n':
            assert self.alias == "gpu0", "only node 0 is told to start"
            self._go.set()

    def read(self, size: int, timeout: float | None = None) -> bytes:
        piece = self._pieces.pop(0) if self._pieces else b""
        if isinstance(piece, bytes):
            return piece
        assert piece.wait(10), "what it waits for never came"
        return self.read(size, timeout)

    def finish(self) -> None:
        pass

    def wait(self, timeout: float) -> Result:
        raise NotImplementedError

    def close(self) -> None:
        pass


def run(store: RunStore) -> tuple[dict[str, Any], list[Event]]:
    """A job that succeeds, of which gpu1 keeps its log back until it is said that it is waited for."""
    go, gathering = threading.Event(), threading.Event()
    hosts = {
        f"gpu{n}": Host(
            f"gpu{n}",
            go,
            state(n, "gate", "gate"),
            go,
            state(n, "running", "start"),
            state(n, "ended", "done", ended=True),
            *([] if n == 0 else [gathering]),
            log(n),
            END,
        )
        for n in range(2)
    }
    events: list[Event] = []

    def tell(event: Event) -> None:
        events.append(event)
        if event.data.get("doing") == "gathering the logs" and event.data["waiting"] == ["gpu1"]:
            gathering.set()

    return Job(RECORD, hosts, store, Interrupts(), Manner(), tell).run(), events


@pytest.mark.timeout(30)
def test_a_job_is_followed_to_the_last_byte_of_its_logs(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    status, events = run(store)
    assert (status["state"], status["exit_code"], status["incomplete"]) == ("succeeded", 0, [])
    assert [store.log("run-1", rank).read_bytes() for rank in range(2)] == [LOG, LOG]
    assert sorted(str(event.data["host"]) for event in events if event.kind == "joined") == ["gpu0", "gpu1"]
    assert sorted(event.data["bytes"] for event in events if event.kind == "line") == [LOG[:-1]] * 2
    assert store.load("run-1").state == "succeeded"


class FullDisk(RunStore):
    """Keeps no record."""

    def save(self, record: RunRecord) -> None:
        raise ClusterkitError("the run cannot be recorded here: no space", "make room")


@pytest.mark.timeout(30)
def test_a_job_outlives_a_full_disk_here(tmp_path: Path) -> None:
    status, events = run(FullDisk(tmp_path))
    assert status["state"] == "succeeded"
    notices = [event.data["text"] for event in events if event.kind == "notice"]
    assert notices == ["the run cannot be recorded here: no space; the job goes on"]
