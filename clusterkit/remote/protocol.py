"""What every way of reaching a host can do; the rest of clusterkit knows nothing more about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Result:
    """How a script ended: exit status, and exactly the bytes that it wrote.

    `sent` is this machine's time, in seconds, when the script went to a shell that was ready for it; None
    where nobody looked. It says nothing of how the script ended, so equal ends are equal without it.
    """

    status: int
    stdout: bytes
    stderr: bytes
    sent: float | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """True if the exit status was 0."""
        return self.status == 0

    @property
    def text(self) -> str:
        """stdout as text, undecodable bytes replaced."""
        return self.stdout.decode("utf-8", "replace")

    def last_lines(self, count: int = 10) -> str:
        """The end of stderr (of stdout if stderr is empty), for an error message."""
        shown = (self.stderr or self.stdout).decode("utf-8", "replace").rstrip()
        return "\n".join(shown.splitlines()[-count:])


class Stream(Protocol):
    """A running script's raw stdin and stdout, both binary. A reader and a writer thread may share it."""

    def send(self, data: bytes) -> None:
        """Write all of `data` to the script's stdin. Raises Unreachable when the connection is gone."""

    def finish(self) -> None:
        """Close the script's stdin."""

    def read(self, size: int, timeout: float | None = None) -> bytes:
        """Up to `size` bytes of stdout as soon as some are there; b"" at its end.

        Raises HostTimeout after `timeout` seconds without a byte, Unreachable when the connection is gone.
        """

    def wait(self, timeout: float) -> Result:
        """The exit status and stderr (the last 64 kB) once the script has ended; stdout is what was not read.

        Raises HostTimeout after `timeout` seconds.
        """

    def close(self) -> None:
        """Give the channel back. Does not end what runs on the host."""


class Remote(Protocol):
    """One host that can be reached. Safe to use from several threads; connects at the first use."""

    @property
    def alias(self) -> str:
        """The host's name in the inventory: the key of every result."""

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        """Run a POSIX shell script (stdin empty) and return how it ended, whatever its exit status.

        Raises Unreachable, or HostTimeout naming `doing` after `timeout` seconds. The script is ended on
        the host as well when the time is up.
        """

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        """Start a POSIX shell script whose last command is `exec PROGRAM`, and return once it has begun.

        What the login shell printed before (banner, noisy profile) is dropped: `read` gives the
        program's bytes from its first, `send` reaches its stdin from the first byte. Any bytes may travel.
        """

    def close(self) -> None:
        """Close the connection; a later use connects again."""
