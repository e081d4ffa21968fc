"""Frames of many hosts in one stream, resumed at the byte where a connection was lost."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterkit import logs
from clusterkit.errors import CommandFailed, HostTimeout, Unreachable
from clusterkit.interrupts import Interrupts
from clusterkit.remote.protocol import Result, Stream
from clusterkit.runs.follow import Following, Frame, FrameReader
from clusterkit.runs.record import NodeRecord, RunRecord, RunStore

NODE = NodeRecord("gpu1", 0, "10.0.0.1", (0, 1), "python3", "/run", "/work", "/logs", {})


class FakeStream:
    """Hands out prepared pieces; an exception among them is raised; None blocks until closed."""

    def __init__(self, pieces: Sequence[bytes | Exception | None]) -> None:
        self._pieces = list(pieces)
        self.sent: queue.Queue[bytes] = queue.Queue()
        self.closed = False

    def send(self, data: bytes) -> None:
        self.sent.put(data)

    def finish(self) -> None:
        pass

    def read(self, size: int, timeout: float | None = None) -> bytes:
        while self._pieces and self._pieces[0] is None and not self.closed:
            time.sleep(0.01)
        if not self._pieces or self.closed:
            return b""
        piece = self._pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        assert piece is not None
        return piece

    def wait(self, timeout: float) -> Result:
        return Result(0, b"", b"")

    def close(self) -> None:
        self.closed = True


class FakeRemote:
    """Opens the prepared streams one after the other."""

    alias = "gpu1"

    def __init__(self, *streams: FakeStream | Exception) -> None:
        self._streams = list(streams)
        self.scripts: list[str] = []

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        raise NotImplementedError

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        self.scripts.append(script)
        stream = self._streams.pop(0)
        if isinstance(stream, Exception):
            raise stream
        return stream

    def close(self) -> None:
        pass


def line(**header: Any) -> bytes:
    return json.dumps(header).encode() + b"\n"


def log(offset: int, data: bytes, file: str = "0") -> bytes:
    return line(frame="log", file=file, offset=offset, size=len(data)) + data


def collect(following: Following, until: str, limit: float = 5.0) -> list[Frame]:
    frames: list[Frame] = []
    end = time.monotonic() + limit
    while time.monotonic() < end:
        frame = following.next(0.1)
        if frame is not None:
            frames.append(frame)
            if frame.kind == until:
                return frames
    raise AssertionError(f"no {until} frame among {[frame.kind for frame in frames]}")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_do_not_depend_on_how_the_bytes_arrive(size: int) -> None:
    data = line(frame="state", state={"a": 1}) + log(0, b"x\n\xff{\n") + line(frame="end")
    reader = FrameReader(FakeStream([data[i : i + size] for i in range(0, len(data), size)]), 1.0)
    frames = [reader.next(), reader.next(), reader.next(), reader.next()]
    assert [frame and frame[0]["frame"] for frame in frames] == ["state", "log", "end", None]
    assert frames[1] is not None
    assert frames[1][1] == b"x\n\xff{\n"


def test_a_stream_that_ends_inside_a_frame_is_an_error() -> None:
    reader = FrameReader(FakeStream([log(0, b"abcdef")[:-2]]), 1.0)
    with pytest.raises(ValueError, match="inside a frame"):
        reader.next()


def test_a_lost_connection_goes_on_at_the_next_byte() -> None:
    first = FakeStream([log(0, b"one\n"), log(4, b"two\n"), Unreachable("gpu1", "connection", "cut")])
    second = FakeStream([log(8, b"three\n"), line(frame="end")])
    remote = FakeRemote(first, second)
    with Following([NODE], {"gpu1": remote}, {"gpu1": {"0": {"offset": 0}}}) as following:
        frames = collect(following, "end")
    assert [frame.kind for frame in frames] == ["log", "log", "unobserved", "observed", "log", "end"]
    assert json.loads(second.sent.get_nowait().split(b"\n")[0]) == {
        "follow": {"0": {"offset": 8, "attempt": 0}},
        "wait": True,
    }


def test_the_supervisor_is_started_until_it_answers_and_then_attached_to() -> None:
    first = FakeStream([HostTimeout("gpu1", "silent")])
    second = FakeStream([line(frame="state", state={}), HostTimeout("gpu1", "silent")])
    third = FakeStream([line(frame="end")])
    remote = FakeRemote(first, second, third)
    with Following([NODE], {"gpu1": remote}, {}, start=True) as following:
        collect(following, "end")
    verbs = [[verb for verb in ("start", "attach") if f" {verb} " in script] for script in remote.scripts]
    assert verbs == [["start"], ["start"], ["attach"]]


def test_a_host_that_cannot_be_reached_once_is_tried_again() -> None:
    remote = FakeRemote(Unreachable("gpu1", "tcp", "refused"), FakeStream([line(frame="end")]))
    with Following([NODE], {"gpu1": remote}, {}) as following:
        frames = collect(following, "end")
    assert [frame.kind for frame in frames] == ["unobserved", "observed", "end"]
    assert frames[0].header["message"] == "refused"


def test_without_wait_nothing_is_tried_again() -> None:
    remote = FakeRemote(Unreachable("gpu1", "tcp", "refused"))
    with Following([NODE], {"gpu1": remote}, {}, wait=False) as following:
        collect(following, "unobserved")
        assert following.next(0.8) is None


def test_a_command_that_fails_on_the_host_is_an_error_frame() -> None:
    remote = FakeRemote(CommandFailed("gpu1", "python3: not found", "install it"))
    with Following([NODE], {"gpu1": remote}, {}) as following:
        frames = collect(following, "error")
    assert frames[-1].header == {"message": "python3: not found", "hint": "install it"}


def test_a_kept_command_travels_over_the_next_connection() -> None:
    stream = FakeStream([None])
    remote = FakeRemote(Unreachable("gpu1", "tcp", "refused"), stream)
    with Following([NODE], {"gpu1": remote}, {}) as following:
        collect(following, "unobserved")
        assert not following.command("gpu1", {"command": "stop"}, keep=True)
        _request, command = stream.sent.get(timeout=5).splitlines()
    assert json.loads(command) == {"command": "stop"}


def test_a_slow_reader_slows_the_host_down() -> None:
    pieces: list[bytes | Exception | None] = [log(i * 10, b"0123456789") for i in range(500)]
    stream = FakeStream(pieces)
    with Following([NODE], {"gpu1": FakeRemote(stream)}, {}) as following:
        time.sleep(0.5)
        assert len(stream._pieces) > 400
        assert following.next(1.0) is not None


def test_reading_logs_leaves_out_who_is_silent_too_long(tmp_path: Path) -> None:
    """The host is connected, and says nothing: the limit is the caller's, and the log of it is not known."""
    record = RunRecord("run-1", "i.ini", "train.py", (), 0.0, (NODE,), status={"state": "running"})
    stream = FakeStream([None])
    with Interrupts() as interrupts:
        store = RunStore(tmp_path)
        watch = logs.refresh(
            record, [0], {"gpu1": FakeRemote(stream)}, store, interrupts, lambda event: None, 0, 0.3
        )
    assert not watch.observed["gpu1"].reachable
    assert watch.observed["gpu1"].error == "nothing came for 0.3 s"
    assert stream.closed


def test_the_limit_reaches_the_stream() -> None:
    class Patient(FakeStream):
        def read(self, size: int, timeout: float | None = None) -> bytes:
            limits.append(timeout)
            return super().read(size, timeout)

    limits: list[float | None] = []
    with Following(
        [NODE], {"gpu1": FakeRemote(Patient([line(frame="end")]))}, {}, wait=False, silence=7
    ) as it:
        collect(it, "end")
    assert limits == [7]
