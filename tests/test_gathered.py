"""Bytes of logs on this side: gathered at their offsets, cut into lines, read from the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.runs.gathered import LONGEST_LINE, GatheredLogs, Lines, tail_offset


def test_two_writers_of_the_same_bytes_leave_each_byte_once(tmp_path: Path) -> None:
    with (
        GatheredLogs(lambda file: tmp_path / file) as one,
        GatheredLogs(lambda file: tmp_path / file) as other,
    ):
        one.write("3", 0, b"abc\n")
        other.write("3", 0, b"abc\n")
        other.write("3", 4, b"def\n")
        one.write("3", 4, b"def\n")
    assert (tmp_path / "3").read_bytes() == b"abc\ndef\n"


def test_the_size_is_where_to_go_on(tmp_path: Path) -> None:
    with GatheredLogs(lambda file: tmp_path / "logs" / file) as logs:
        assert logs.size("3") == 0
        logs.write("3", 0, b"\xff\xfe\x00")
        assert logs.size("3") == 3


def test_gathered_logs_are_private(tmp_path: Path) -> None:
    with GatheredLogs(lambda file: tmp_path / "logs" / file) as logs:
        logs.write("3", 0, b"x")
    assert (tmp_path / "logs" / "3").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700


@given(st.lists(st.binary(max_size=40), max_size=20), st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_lines_do_not_depend_on_how_the_bytes_arrive(lines: list[bytes], cuts: list[int]) -> None:
    clean = [line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
    data = b"".join(line + b"\n" for line in clean)
    cutter = Lines()
    seen: list[tuple[int, bytes]] = []
    position = 0
    for cut in cuts:
        seen += cutter.feed("3", data[position : position + cut], position)
        position += cut
    seen += cutter.feed("3", data[position:], position)
    assert [line for _, line in seen] == clean
    assert [end for end, _ in seen] == [
        sum(len(line) + 1 for line in clean[: number + 1]) for number in range(len(clean))
    ]
    assert list(cutter.rest()) == []


def test_files_do_not_mix_and_the_last_piece_is_kept() -> None:
    lines = Lines()
    assert list(lines.feed("1", b"one")) == []
    assert list(lines.feed("2", b"two\nmore")) == [(4, b"two")]
    assert sorted(lines.rest()) == [("1", b"one"), ("2", b"more")]


def test_an_endless_line_is_shown_in_pieces_and_memory_stays_flat() -> None:
    lines = Lines()
    shown = [piece for turn in range(40) for piece in lines.feed("1", b"x" * 10_000, turn * 10_000)]
    assert [len(piece) for _, piece in shown] == [LONGEST_LINE] * 6
    assert [end for end, _ in shown] == [LONGEST_LINE * number for number in range(1, 7)]
    assert sum(len(piece) for _, piece in shown) + len(next(lines.rest())[1]) == 400_000


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_the_tail_is_the_last_lines(tmp_path: Path, count: int, ending: bytes) -> None:
    path = tmp_path / "log"
    lines = [b"first " + b"x" * 70_000, b"", b"third", b"\xff last"]
    path.write_bytes(b"\n".join(lines) + ending)
    with open(path, "rb") as file:
        file.seek(tail_offset(path, count))
        rest = file.read()
    wanted = lines[-count:] if count else []
    assert rest == (b"\n".join(wanted) + ending if wanted else b"")


def test_the_tail_of_an_empty_file_is_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert tail_offset(tmp_path / "log", 5) == 0
