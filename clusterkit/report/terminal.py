"""The two streams: results on stdout, words about them on stderr; colour and progress only on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TextIO

_COLOURS = {
    "red": 31,
    "green": 32,
    "yellow": 33,
    "blue": 34,
    "magenta": 35,
    "cyan": 36,
    "grey": 90,
    "bold": 1,
}
# Distinct on dark and light backgrounds; a rank keeps its colour for the whole run.
_RANK_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
# Without a terminal a progress line is a line of its own: none for what is quick, then one every few seconds.
_PLAIN_FIRST_S = 2.0
_PLAIN_PROGRESS_S = 10.0


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour if the stream is a terminal and NO_COLOR is not set."""
    if not stream.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def rank_colour(rank: int) -> str:
    """The colour of a rank's prefix."""
    return _RANK_COLOURS[rank % len(_RANK_COLOURS)]


class Words:
    """Sentences on stderr, and what is going on now with the seconds that it has taken so far."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self.stream = stream or sys.stderr
        self._quiet = quiet
        self._lock = threading.RLock()
        self._doing = ""
        self._since = 0.0
        self._shown = False
        self._plain_due = 0.0
        self._ticker: threading.Thread | None = None

    def say(self, text: str, colour: str | None = None) -> None:
        """A line that stays."""
        if not self._quiet:
            self.insist(text, colour)

    def insist(self, text: str, colour: str | None = None) -> None:
        """A line that stays, also with `--quiet`."""
        with self._lock:
            self.wipe()
            print(coloured(text, colour, self.stream) if colour else text, file=self.stream, flush=True)

    def progress(self, text: str) -> None:
        """What is going on, until `clear`: rewritten in place on a terminal, else a line now and then."""
        if self._quiet:
            return
        with self._lock:
            if not self._doing:
                self._since = time.monotonic()
                self._plain_due = self._since + _PLAIN_FIRST_S
            self._doing = text
            if self._ticker is None:
                self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
                self._ticker.start()
            if self.stream.isatty():
                self._show()

    def clear(self) -> None:
        """Nothing is going on any more."""
        with self._lock:
            self.wipe()
            self._doing = ""

    def wipe(self) -> None:
        """Take the progress line off the terminal for a moment, so that something else can be written."""
        with self._lock:
            if self._shown:
                print("\r\x1b[K", end="", file=self.stream, flush=True)
                self._shown = False

    def _tick(self) -> None:
        while True:
            time.sleep(0.5)
            with self._lock:
                if self._doing:
                    self._show()

    def _show(self) -> None:
        now = time.monotonic()
        text = f"{self._doing} ({now - self._since:.0f} s)"
        if self.stream.isatty():
            print(f"\r\x1b[K{text[: max(20, _columns() - 1)]}", end="", file=self.stream, flush=True)
            self._shown = True
        elif now >= self._plain_due:
            self._plain_due = now + _PLAIN_PROGRESS_S
            print(text, file=self.stream, flush=True)

    def _wipe(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=self.stream, flush=True)
            self._shown = False


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        return 80


def write_bytes(data: bytes) -> None:
    """A log's bytes to stdout: as they are into a pipe or file, with replacement characters on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(data.decode("utf-8", "replace"))
        sys.stdout.flush()
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_line(prefix: str, colour: str, line: bytes) -> None:
    """One line of a log with its prefix; its bytes are kept as they are unless stdout is a terminal."""
    write_bytes(coloured(prefix, colour, sys.stdout).encode() + b" " + line + b"\n")
