"""The two streams: results on stdout, words about them on stderr; colour and progress only on a terminal."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
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


class ReaderGone(Exception):
    """Nobody reads stdout any more: `| head`, a pager that was left, a terminal that was closed."""


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour if the stream is a terminal and NO_COLOR (no-color.org) is not set, or empty."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def rank_colour(rank: int) -> str:
    """The colour of a rank's prefix."""
    return _RANK_COLOURS[rank % len(_RANK_COLOURS)]


class Words:
    """Sentences on stderr, and what is going on now with the seconds that it has taken so far.

    A command whose product is sentences (preflight, reset, stop) has another one for stdout.
    """

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
        with self.aside():
            self._print((coloured(text, colour, self.stream) if colour else text) + "\n")

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
        with self.aside():
            self._doing = ""

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """The progress line is off the terminal while something else is written there."""
        with self._lock:
            self._wipe()
            yield

    def _wipe(self) -> None:
        if self._shown:
            self._print("\r\x1b[K")
            self._shown = False

    def _print(self, text: str) -> None:
        encoding = self.stream.encoding or "utf-8"
        try:
            # A stream may lack a character that a sentence has.
            shown = text.encode(encoding, "replace").decode(encoding)
            print(shown, end="", file=self.stream, flush=True)
        except OSError as error:
            # What goes on is more than our words about it: a job does not end because its terminal did.
            if not _is_gone(error):
                raise
            forget_reader(self.stream)

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
            self._print(f"\r\x1b[K{text[: max(20, _columns() - 1)]}")
            self._shown = True
        elif now >= self._plain_due:
            self._plain_due = now + _PLAIN_PROGRESS_S
            self._print(text + "\n")


def _columns() -> int:
    try:
        # A terminal over a serial line or in a pipe's place may not know its width and say 0.
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def write_bytes(data: bytes) -> None:
    """A log's bytes to stdout: as they are into a pipe or file, with replacement characters on a terminal.

    Raises ReaderGone.
    """
    if sys.stdout.isatty():
        _write_text(data.decode("utf-8", "replace"))
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        raise _gone(error) from None


def write_pieces(pieces: Iterable[bytes]) -> None:
    """The same for a file that comes in pieces, which may cut a character in two. Raises ReaderGone."""
    if not sys.stdout.isatty():
        for piece in pieces:
            write_bytes(piece)
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        _write_text(decoder.decode(piece))
    _write_text(decoder.decode(b"", True))


def write_line(prefix: str, colour: str, line: bytes) -> None:
    """One line of a log with its prefix; its bytes are kept as they are unless stdout is a terminal.

    Raises ReaderGone.
    """
    write_bytes(coloured(prefix, colour, sys.stdout).encode() + b" " + line + b"\n")


def forget_reader(stream: TextIO) -> None:
    """Writing to a stream that nobody reads any more works from now on, and goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


def _write_text(text: str) -> None:
    """Text to the terminal, whose encoding may lack a character of it."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding, "replace"))
        sys.stdout.flush()
    except OSError as error:
        raise _gone(error) from None


def _gone(error: OSError) -> Exception:
    return ReaderGone() if _is_gone(error) else error


def _is_gone(error: OSError) -> bool:
    """A closed pipe; a terminal that was hung up gives EIO."""
    return error.errno in (errno.EPIPE, errno.EIO)
