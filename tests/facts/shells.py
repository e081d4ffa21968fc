"""This machine behind the Remote protocol, through a shell of the test's choice."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from clusterkit.errors import HostTimeout
from clusterkit.remote.protocol import Result, Stream

SHELLS: tuple[tuple[str, ...], ...] = (
    ("sh", "-s"),
    ("dash", "-s"),
    ("bash", "--posix", "-s"),
    ("busybox", "sh", "-s"),
)


@dataclass(frozen=True)
class Shell:
    """Runs each script by `command` on this machine; `scripts` is what it was asked to run."""

    command: tuple[str, ...] = ("sh", "-s")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    alias: str = "here"
    before: str = ""
    scripts: list[str] = field(default_factory=list)

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        """The script's result; a process that holds the pipes open past its end is not waited for."""
        self.scripts.append(script)
        # In a child of the login's shell, as a remote does it: `$$` is not the pid that it seems to be.
        text = f"{self.before}\n(eval {shlex.quote(script)}) </dev/null"
        try:
            done = subprocess.run(
                self.command,
                input=text.encode(),
                capture_output=True,
                timeout=timeout,
                env=dict(self.environment),
            )
        except subprocess.TimeoutExpired:
            raise HostTimeout(self.alias, f"{doing}: no answer within {timeout:g} s") from None
        return Result(done.returncode, done.stdout, done.stderr)

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        """Facts need no stream."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture(params=SHELLS, ids=["sh", "dash", "bash", "busybox"])
def shell(request: pytest.FixtureRequest) -> Shell:
    """Each POSIX shell that this machine has."""
    command: tuple[str, ...] = request.param
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return Shell(command)
