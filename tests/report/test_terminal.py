"""What reaches a terminal, a pipe, and nobody."""

from __future__ import annotations

import io
import os
import pty
import select
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest

from clusterkit.report import terminal
from clusterkit.report.terminal import ReaderGone, Words


@pytest.fixture
def broken_pipe() -> Iterator[TextIO]:
    """A stream whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        yield stream


@pytest.fixture
def screen() -> Iterator[tuple[int, TextIO]]:
    """A terminal: our side, and the stream that a program has."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        yield ours, stream
    os.close(ours)


def shown(screen: int) -> str:
    """Everything that has been written to it."""
    data = b""
    while select.select([screen], [], [], 0.1)[0]:
        data += os.read(screen, 1000)
    return data.decode()


def test_a_closed_pipe_is_told_from_other_faults(
    broken_pipe: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", broken_pipe)
    with pytest.raises(ReaderGone):
        terminal.write_bytes(b"x")
    terminal.forget_reader(broken_pipe)
    terminal.write_bytes(b"goes nowhere, without a word")


def test_words_that_nobody_hears_end_nothing(broken_pipe: TextIO) -> None:
    words = Words(broken_pipe)
    words.say("once")
    words.say("twice")


def test_a_character_cut_in_two_is_whole_on_a_terminal(
    screen: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", screen[1])
    data = "日本語".encode() + b"\xff\xe6"
    terminal.write_pieces([data[:4], data[4:7], data[7:]])
    assert shown(screen[0]) == "日本語\ufffd\ufffd"


def test_no_color_counts_unless_it_is_empty(
    screen: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    for value, coloured in (("1", False), ("", True)):
        monkeypatch.setenv("NO_COLOR", value)
        assert ("\x1b" in terminal.coloured("x", "red", screen[1])) is coloured


def test_a_pipe_gets_no_colour_and_every_byte() -> None:
    assert terminal.coloured("x", "red", io.StringIO()) == "x"
