"""When a log was written: noted while it grows, found again by offset and by time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterkit.node.follow import Log
from clusterkit.node.times import Clock, Times


def grow(log: Path, data: bytes, at: float) -> os.stat_result:
    with open(log, "ab") as file:
        file.write(data)
    os.utime(log, (at, at))
    return log.stat()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten bytes at 100, nothing at 101, ten at 102, and ten at 105 that nobody has noted yet."""
    path, clock = tmp_path / "log", Clock()
    noted = {str(tmp_path / "0.times"): str(path), str(tmp_path / "1.times"): str(tmp_path / "none")}
    grow(path, b"a" * 9 + b"\n", 100)
    clock.note(noted, 1.0)
    clock.note(noted, 2.0)
    grow(path, b"b" * 9 + b"\n", 102)
    clock.note(noted, 2.5)
    clock.note(noted, 3.0)
    grow(path, b"c" * 9 + b"\n", 105)
    return path


def test_an_entry_for_each_second_in_which_it_grew(log: Path) -> None:
    assert (log.parent / "0.times").read_text() == "10 100.000\n20 102.000\n"
    assert not (log.parent / "1.times").exists()
    assert (log.parent / "0.times").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        (0, 5, [(10, 100.0)]),
        (0, 10, [(10, 100.0)]),
        (0, 11, [(10, 100.0), (20, 102.0)]),
        (10, 20, [(20, 102.0)]),
        (5, 30, [(10, 100.0), (20, 102.0), (30, 105.0)]),
        (20, 30, [(30, 105.0)]),
    ],
)
def test_what_is_known_of_a_piece(log: Path, begin: int, end: int, found: list[tuple[int, float]]) -> None:
    """All of it: the last entry has the piece's end, if only by the log's own time."""
    assert Times(str(log.parent / "0.times")).within(begin, end, log.stat()) == found


@pytest.mark.parametrize(("at", "offset"), [(99, 0), (100, 0), (101, 10), (102, 10), (103, 20)])
def test_where_to_begin_for_a_time(log: Path, at: float, offset: int) -> None:
    assert Times(str(log.parent / "0.times")).before(at) == offset


def test_reading_goes_on_while_entries_come_and_a_shorter_log_begins_anew(log: Path) -> None:
    path = log.parent / "0.times"
    times = Times(str(path))
    assert times.within(0, 20, log.stat())[-1] == (20, 102.0)
    with open(path, "a") as file:
        file.write("30 105.000\nno entry\n40 99.0")
        file.flush()
        assert times.within(20, 30, log.stat()) == [(30, 105.0)]
        file.write("00\n7 200.000\n")
    assert times.within(0, 7, log.stat()) == [(7, 200.0)], "of another text since then"


def test_a_clock_that_was_set_back_does_not_make_later_lines_older(log: Path) -> None:
    with open(log.parent / "0.times", "a") as file:
        file.write("30 50.000\n")
    assert Times(str(log.parent / "0.times")).within(20, 30, log.stat()) == [(30, 102.0)]


def test_a_log_since_a_time_begins_with_a_whole_line(log: Path) -> None:
    (log.parent / "0.times").write_text("5 100.000\n15 102.000\n")
    piece = Log(lambda: str(log), {"since": 103}, Times(str(log.parent / "0.times"))).read()
    assert piece is not None
    assert (piece.offset, piece.data[:1]) == (10, b"b")
    assert piece.times == [(15, 102.0), (30, 105.0)]


def test_a_disk_that_takes_nothing_is_no_failure(tmp_path: Path) -> None:
    grow(tmp_path / "log", b"x", 1)
    Clock().note({str(tmp_path / "none" / "0.times"): str(tmp_path / "log")}, 1.0)
    assert Times(str(tmp_path / "none" / "0.times")).before(5) == 0
