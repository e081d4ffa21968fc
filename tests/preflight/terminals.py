"""A command on a terminal, and a person who answers its question."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CTRL_C = "\x03"


def answered(
    argv: Sequence[str], answer: str, cwd: Path, env: Mapping[str, str], limit: float = 120.0
) -> tuple[int, str]:
    """Run it on a terminal, type the answer once it asks; its exit code and all that was on the terminal."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env=dict(env),
        )
    finally:
        os.close(theirs)
    try:
        return _talk(process, ours, answer, time.monotonic() + limit)
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait(10)


def _talk(process: subprocess.Popen[bytes], terminal: int, answer: str, end: float) -> tuple[int, str]:
    seen, asked = b"", False
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # the last one has closed it
                return process.wait(10), seen.decode()
        if not asked and b"[y/N] " in seen:
            os.write(terminal, answer.encode() if answer == CTRL_C else f"{answer}\n".encode())
            asked = True
    raise AssertionError(f"still running: {seen.decode()}")
