"""What a launch that never started says about what it could not take back."""

from __future__ import annotations

from clusterkit.errors import ClusterkitError, FleetError, Interrupted, Unreachable
from clusterkit.remote.protocol import Result, Stream
from clusterkit.runs.events import Event
from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.staging import take_back

NODES = tuple(
    NodeRecord(f"gpu{n}", n, f"10.0.0.{n}", (n,), "python3", f"/r{n}/run-1", "/w", f"/r{n}/run-1/logs", {})
    for n in range(2)
)
RECORD = RunRecord("run-1", "inventory.ini", "train.py", (), 0.0, NODES)
GONE = Unreachable("gpu1", "tcp", "gpu1 (10.0.0.1:22): no answer", "is it up?")


class Host:
    """Takes the removal and says how it ended; gpu1 does not answer unless told to."""

    def __init__(self, alias: str, answer: Result | None) -> None:
        self.alias = alias
        self.answer = answer
        self.scripts: list[str] = []

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        self.scripts.append(script)
        if self.answer is None:
            raise GONE
        return self.answer

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        pass


def told(why: ClusterkitError, gpu1: Result | None = None) -> list[str]:
    """The notices of taking back, where gpu0 does what it is told."""
    hosts = {"gpu0": Host("gpu0", Result(0, b"", b"")), "gpu1": Host("gpu1", gpu1)}
    events: list[Event] = []
    take_back(RECORD, hosts, 2, events.append, why)
    assert "rm -rf -- /r0/run-1\n" in hosts["gpu0"].scripts[0]
    return [str(event.data["text"]) for event in events]


def test_what_stays_behind_is_named() -> None:
    (text,) = told(Interrupted(2))
    assert text.startswith("left behind on gpu1: /r1/run-1 (")
    assert text.endswith(": gpu1 (10.0.0.1:22): no answer")


def test_a_removal_that_fails_is_told_with_its_reason() -> None:
    (text,) = told(Interrupted(2), Result(1, b"", b"rm: cannot remove '/r1': Read-only file system\n"))
    assert text.startswith("left behind on gpu1: /r1/run-1 (")
    assert text.endswith(": rm: cannot remove '/r1': Read-only file system")


def test_a_host_that_could_not_be_reached_is_named_once() -> None:
    assert told(FleetError({"gpu1": GONE}, "staging")) == []
