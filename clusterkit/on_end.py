"""A command of the user's that is told of a run's end: `launch --on-end CMD`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from clusterkit.interrupts import Interrupts

# Enough for a message to a chat; whoever wants to do more puts it into the background.
ON_END_LIMIT_S = 60.0
# From SIGTERM to SIGKILL, for a command that takes longer.
_LAST_WORDS_S = 2.0
_POLL_S = 0.05


def tell_end(
    command: str, status: Mapping[str, Any], interrupts: Interrupts, limit: float = ON_END_LIMIT_S
) -> str:
    """Run `command` with `sh -c` and the status document on its stdin; "", or a sentence on why it failed.

    What it prints goes to stderr, since stdout is the job's. It ends after `limit` seconds or on a signal
    that comes while it runs. Neither this nor the sentence says what the command is: it may hold a token.
    """
    before = interrupts.count
    with tempfile.TemporaryFile() as document:
        document.write(json.dumps(status, indent=1).encode() + b"\n")
        document.seek(0)
        try:
            # A session of its own: Ctrl-C has ended the run, and shall not end the news of it as well.
            child = subprocess.Popen(
                ["/bin/sh", "-c", command], stdin=document, stdout=2, start_new_session=True
            )
        except OSError as error:
            return f"the command of --on-end could not be started: {error.strerror}"
    end = time.monotonic() + limit
    while child.poll() is None:
        if interrupts.count > before or time.monotonic() > end:
            _end(child)
            why = "was interrupted" if interrupts.count > before else f"did not end within {limit:g} s"
            return f"the command of --on-end {why} and was ended"
        time.sleep(_POLL_S)
    if child.returncode == 0:
        return ""
    how = f"exited with {child.returncode}" if child.returncode > 0 else f"got signal {-child.returncode}"
    return f"the command of --on-end {how}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Nothing of the command's session runs any more, unless it left it."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LAST_WORDS_S)
