"""Which lines of a log are shown: by pattern and by level; and what in them stands out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from re import Pattern

from clusterkit.errors import InputError

LEVELS = ("debug", "info", "warning", "error", "critical")

# As logging, glog (`E1201 12:00:00.123456`) and PaddlePaddle ("LAUNCH WARNING") write levels; a traceback,
# and what PaddlePaddle's C++ side begins its errors with, are errors too.
_LEVEL = re.compile(
    rb"\b(DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
    rb"|^(?:\[rank\d+\]:? *)?([IWEF])(?:\d{4}|\d{8}) \d\d:\d\d:\d\d"
    rb"|(^Traceback \(most recent call last\)|^[\w.]*(?:Error|Exception)\b"
    rb"|^C\+\+ Traceback|^Error Message Summary)"
)
_NAMES = {
    b"DEBUG": 0,
    b"INFO": 1,
    b"WARN": 2,
    b"WARNING": 2,
    b"ERROR": 3,
    b"CRITICAL": 4,
    b"FATAL": 4,
    b"I": 1,
    b"W": 2,
    b"E": 3,
    b"F": 4,
}
# Colours and cursor movements (ECMA-48), which a pattern does not mean.
_ESCAPE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
# How far into a line its level is looked for: after the time, the file and the rank.
_HEAD = 200


@dataclass(frozen=True)
class Choice:
    """What `logs` was asked to show. Patterns look at a line without its colours.

    `level` is the index in LEVELS of the lowest level shown, None for all.
    """

    grep: tuple[Pattern[bytes], ...] = ()
    exclude: tuple[Pattern[bytes], ...] = ()
    highlight: tuple[Pattern[bytes], ...] = ()
    level: int | None = None

    @property
    def everything(self) -> bool:
        """True if each line is shown, and as it is."""
        return not (self.grep or self.exclude or self.highlight) and self.level is None


class Sieve:
    """Lets through the chosen lines of several processes."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        # A line that names no level belongs to the one before it: a traceback to its error.
        self._levels: dict[int, int] = {}

    def lets_through(self, process: int, line: bytes) -> bool:
        """Whether this line, the process's next, is one to show."""
        choice = self._choice
        bare = _ESCAPE.sub(b"", line) if b"\x1b" in line else line
        if choice.level is not None:
            level = level_of(bare)
            level = self._levels.get(process, 1) if level is None else level
            self._levels[process] = level
            if level < choice.level:
                return False
        if choice.grep and not any(pattern.search(bare) for pattern in choice.grep):
            return False
        return not any(pattern.search(bare) for pattern in choice.exclude)


def level_of(line: bytes) -> int | None:
    """The line's level as an index in LEVELS; None if it names none."""
    found = _LEVEL.search(line, 0, _HEAD)
    if found is None:
        return None
    return 3 if found[3] else _NAMES[found[1] or found[2]]


def highlighted(line: bytes, patterns: Sequence[Pattern[bytes]]) -> bytes:
    """The line with what matches in reverse video, its own colours kept."""
    for pattern in patterns:
        line = pattern.sub(lambda match: b"\x1b[7m" + match[0] + b"\x1b[27m" if match[0] else b"", line)
    return line


def patterns(option: str, texts: Sequence[str]) -> tuple[Pattern[bytes], ...]:
    """The regular expressions of an option. Raises InputError, which says what is wrong and where."""
    compiled = []
    for text in texts:
        try:
            compiled.append(re.compile(text.encode("utf-8", "surrogateescape")))
        except re.error as error:
            place = "" if error.pos is None else f" at character {error.pos + 1}"
            raise InputError(
                f"{option} {text}: not a regular expression: {error.msg}{place}",
                "put a backslash before a character that shall be meant as itself, as in `\\[`",
            ) from None
    return tuple(compiled)


def level(text: str | None) -> int | None:
    """The index of a level's name in LEVELS. Raises InputError."""
    if text is None:
        return None
    wanted = {"warn": "warning", "fatal": "critical"}.get(text.lower(), text.lower())
    if wanted not in LEVELS:
        raise InputError(f"--level {text}: no such level", f"write one of {', '.join(LEVELS)}")
    return LEVELS.index(wanted)
