"""clusterkit as a person has it: on a terminal of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tests.e2e.cluster import Cluster

COLUMNS = 120
# The terminal becomes the controlling one: a password is asked for on /dev/tty.
_ENTER = "import fcntl,os,sys,termios; fcntl.ioctl(0,termios.TIOCSCTTY,0); os.execv(sys.argv[1],sys.argv[1:])"
_COLOUR = re.compile(r"\x1b\[\d*m")
_CLEARED = "\r\x1b[K"


@dataclass(frozen=True)
class Screen:
    """How a command on a terminal ended, and every byte that it sent there."""

    code: int
    raw: bytes

    @property
    def text(self) -> str:
        """All of it with its colours; a terminal takes a strict UTF-8 stream only."""
        return self.raw.decode("utf-8").replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """The lines that stay, without colours: what a progress line has wiped is not among them."""
        return [_COLOUR.sub("", line.split(_CLEARED)[-1]) for line in self.text.split("\n")]

    @property
    def wiped(self) -> list[str]:
        """What stood there for a while only."""
        return [part for line in self.text.split("\n") for part in line.split(_CLEARED)[:-1] if part]


def on_terminal(
    cluster: Cluster,
    *arguments: str,
    answers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    limit: float = 90.0,
) -> Screen:
    """Run `clusterkit ARGUMENTS…` on a new terminal; `answers`: what is typed at a prompt with that end."""
    words = [str(cluster.sandbox.inventory) if word == "INVENTORY" else word for word in arguments]
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _ENTER, sys.executable, "-m", "clusterkit", *words],
        cwd=cluster.folder,
        env={**cluster.env, "TERM": "xterm", **(env or {})},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        raw = _read(ours, dict(answers or {}), time.monotonic() + limit)
        return Screen(process.wait(10), raw)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        os.close(ours)


def _read(terminal: int, answers: dict[str, str], end: float) -> bytes:
    raw = b""
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # EIO: the other side has closed it
            return raw
        if not piece:
            return raw
        raw += piece
        for prompt in [prompt for prompt in answers if raw.rstrip().endswith(prompt.encode())]:
            with contextlib.suppress(OSError):
                os.write(terminal, answers.pop(prompt).encode() + b"\n")
    raise AssertionError(f"still running:\n{raw.decode('utf-8', 'replace')}")
