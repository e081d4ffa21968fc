"""Enter a host without ssh, by way of its namespaces."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence

from clusterkit.errors import HostTimeout
from clusterkit.sandbox.processes import Identity
from clusterkit.sandbox.requirements import SYSTEM_PATH, path_of


def entering(init: Identity, command: Sequence[str]) -> list[str]:
    """The program and arguments with which root on this machine runs a command as root on the host."""
    pid = str(init.pid)
    namespaces = ["-m", "-u", "-i", "-n", "-p"]
    environment = [f"PATH={SYSTEM_PATH}", "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash"]
    # nsenter forks; without the signal the command would run on after nsenter was killed.
    inside = ["setpriv", "--pdeathsig", "KILL", "/bin/sh", "-c", 'cd && exec "$@"', "sh", *command]
    return [
        path_of("nsenter"),
        "-t",
        pid,
        *namespaces,
        f"--root=/proc/{pid}/root",
        "--",
        "/usr/bin/env",
        "-i",
        *environment,
        *inside,
    ]


def run_on(
    name: str, init: Identity, command: Sequence[str] | str, *, stdin: str = "", timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """The command's result, whatever its status. Text is a script for /bin/sh, a sequence is run as it is.

    HostTimeout after `timeout` seconds.
    """
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    try:
        return subprocess.run(
            entering(init, words),
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HostTimeout(name, f"{name}: `{shlex.join(words)}` did not end within {timeout:g} s") from error
