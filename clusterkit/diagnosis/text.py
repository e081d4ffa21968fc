"""Logs as lines that patterns can be held against: bounded, whatever a rank wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A longer line is looked at in windows of this size that overlap: the time grows with its length alone.
_WINDOW = 2048
_OVERLAP = 512

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# Tabs stay; what a terminal would act on does not.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffd]+")
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# Paddle's C++ part says what happened below this heading and a line of dashes.
_SUMMARY = "Error Message Summary:"
_BAD = re.compile(
    r"Error\b|Exception\b|\berror\b|\bfatal\b|\babort|\bterminate called|\bcore dumped|\bpanic\b"
    r"|\bkilled\b|\bsegmentation fault\b|\bfailed\b|\bcannot\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Raised:
    """What a program said last about its own failure: a traceback, and its first error in one line."""

    traceback: tuple[str, ...]
    first_error: str


def lines(text: str) -> list[str]:
    """The lines of a log without colours and binary noise; a progress bar's parts are lines too."""
    return [_CONTROL.sub("", _ANSI.sub("", line)).rstrip() for line in re.split(r"\r?\n|\r", text)]


def windows(line: str) -> Iterator[str]:
    """The line, in overlapping pieces if it is long."""
    if len(line) <= _WINDOW:
        yield line
        return
    for start in range(0, len(line) - _OVERLAP, _WINDOW - _OVERLAP):
        yield line[start : start + _WINDOW]


def raised(log: list[str]) -> Raised:
    """The last traceback with those that led to it, and the error that came first; both may be empty."""
    start, end = _last_traceback(log)
    if start < 0:
        return Raised((), next((line.strip() for line in log if _BAD.search(line[:_WINDOW])), ""))
    chain = _first_of_chain(log, start)
    return Raised(tuple(log[chain:end]), _error_of(log, chain, end))


def _last_traceback(log: list[str]) -> tuple[int, int]:
    """Where the last traceback begins, and where the line after its exception is; -1 without one."""
    starts = [number for number, line in enumerate(log) if line.strip() == _TRACEBACK]
    return (starts[-1], _end_of(log, starts[-1])) if starts else (-1, -1)


def _end_of(log: list[str], start: int) -> int:
    """The line after the exception that ends the traceback which begins at `start`."""
    indent = len(log[start]) - len(log[start].lstrip())
    for number in range(start + 1, len(log)):
        line = log[number]
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return number + 1
    return len(log)


def _first_of_chain(log: list[str], start: int) -> int:
    """Where the first of the tracebacks begins that Python printed as one chain."""
    above = [number for number in range(max(0, start - 3), start) if log[number].strip() in _CHAINED]
    if not above:
        return start
    before = [number for number in range(above[0]) if log[number].strip() == _TRACEBACK]
    if not before or _end_of(log, before[-1]) < above[0] - 40:
        return start
    return _first_of_chain(log, before[-1])


def _error_of(log: list[str], start: int, end: int) -> str:
    exception = log[min(_end_of(log, start), end) - 1].strip()
    said = exception.partition(":")[2].strip()
    return exception if said else " ".join([exception, _summary(log, start)]).strip()


def _summary(log: list[str], start: int) -> str:
    """What Paddle's C++ part says under its heading, after a traceback whose exception has no words."""
    for number in range(start, len(log)):
        if log[number].strip() == _SUMMARY:
            below = (line.strip() for line in log[number + 1 : number + 6])
            return next((line for line in below if line.strip("-")), "")
    return next((line.strip() for line in log[_end_of(log, start) :] if line.strip("- ")), "")
