"""Run a program of this machine with a time limit, and turn its failure into one sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from clusterkit.errors import ClusterkitError


def run(argv: Sequence[str], *, stdin: str = "", timeout: float = 30.0, hint: str = "") -> str:
    """The program's stdout; ClusterkitError with its last line of stderr where it failed."""
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            close_fds=False,  # the sandbox's lock, which this program keeps should we be killed
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterkitError(f"`{argv[0]}` did not end within {timeout:g} s", hint) from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or [
            f"exit status {done.returncode}"
        ]
        raise ClusterkitError(f"`{' '.join(argv)}`: {lines[-1]}", hint)
    return done.stdout
