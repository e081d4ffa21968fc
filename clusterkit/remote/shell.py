"""A POSIX shell that waits for its script on stdin, on a host or here: all that is done over a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# How much stderr a stream keeps for its end.
STDERR_KEPT = 65536


@dataclass(frozen=True)
class Chunk:
    """What came: bytes of stdout and of stderr; `ended` when nothing more will come on either."""

    out: bytes
    err: bytes
    ended: bool


class ShellGone(Exception):
    """The connection under a shell is lost; the text says how."""


class Shell(Protocol):
    """One `sh -s`. One thread may send while another receives."""

    def send(self, data: bytes) -> None:
        """Write all of `data`. Raises ShellGone; BrokenPipeError if the shell reads no more."""

    def finish(self) -> None:
        """Close its stdin."""

    def receive(self, timeout: float | None) -> Chunk:
        """What has come, as soon as there is something. Raises TimeoutError, ShellGone."""

    def status(self, timeout: float) -> int | None:
        """The exit status (128+n for a signal) once it has ended; None if unknown. Raises TimeoutError."""

    def close(self) -> None:
        """Let go of it. What runs in it goes on."""
