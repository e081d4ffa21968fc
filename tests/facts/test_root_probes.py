"""Probes that only root can answer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clusterkit import facts
from clusterkit.errors import Unreachable
from clusterkit.facts import NEEDS_ROOT, Facts, Probe, ProbeFailed, gather
from clusterkit.inventory.model import Secret, Settings
from clusterkit.remote.protocol import Result, Stream

WHO: Probe[str] = Probe("who", "id -u", lambda output: output.stdout.strip(), root=True)
EITHER: Probe[str] = Probe("either", "id -u", lambda output: output.stdout.strip(), root=True, or_login=True)
PLAIN: Probe[str] = Probe("plain", "id -u", lambda output: output.stdout.strip())


class Shell:
    """Runs scripts with `sh` as another user; with `sudo` as root, as a remote with a password does."""

    alias = "gpu1"

    def __init__(self, path: Path, uid: int, refusal: Unreachable | None = None) -> None:
        self._environ = {"PATH": f"{path}:{os.environ['PATH']}", "HOME": "/", "TMPDIR": "/tmp"}
        self._uid = uid
        self._refusal = refusal
        self.with_sudo = 0

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        self.with_sudo += sudo
        if sudo and self._refusal:
            raise self._refusal
        ended = subprocess.run(
            ["sh", "-s"],
            input=script.encode(),
            capture_output=True,
            env=self._environ,
            timeout=timeout,
            check=False,
            user=None if sudo else self._uid,
            extra_groups=None if sudo else [],
        )
        return Result(ended.returncode, ended.stdout, ended.stderr)

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        pass


def read(shell: Shell, settings: Settings) -> Facts:
    return gather(shell, settings, (WHO, EITHER, PLAIN), timeout=20)


@pytest.fixture
def sudo(tmp_path: Path) -> Path:
    """A directory for PATH with a `sudo` that never answers without a password."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("changing the user needs root")
    tmp_path.chmod(0o755)
    (tmp_path / "sudo").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sudo").chmod(0o755)
    return tmp_path


def test_without_permission_root_is_never_asked_for(sudo: Path) -> None:
    shell = Shell(sudo, 65534)
    found = read(shell, Settings("gpu1", "gpu1", become_password=Secret("x")))
    failure = found.failure(WHO)
    assert isinstance(failure, ProbeFailed)
    assert failure.status == NEEDS_ROOT
    assert "only root can read this" in failure.message
    assert (found[EITHER], found[PLAIN]) == ("65534", "65534")
    assert shell.with_sudo == 0


def test_with_a_password_root_answers_in_one_more_round_trip(sudo: Path) -> None:
    """The remote knows it, whether it is the inventory's or was asked for."""
    shell = Shell(sudo, 65534)
    found = read(shell, Settings("gpu1", "gpu1", become=True))
    assert (found[WHO], found[PLAIN]) == ("0", "65534")
    assert shell.with_sudo == 1


def test_a_refusal_costs_only_what_needs_root(sudo: Path) -> None:
    words = "gpu1 (10.0.0.1:22): the sudo password was wrong"
    shell = Shell(sudo, 65534, Unreachable("gpu1", "sudo", words, "check it"))
    found = read(shell, Settings("gpu1", "gpu1", become=True))
    failure = found.failure(WHO)
    assert failure is not None
    assert (failure.status, failure.hint) == (NEEDS_ROOT, "check it")
    assert failure.message == "who: the sudo password was wrong"
    assert found[PLAIN] == "65534"


def test_a_connection_that_is_lost_meanwhile_is_no_refusal(sudo: Path) -> None:
    shell = Shell(sudo, 65534, Unreachable("gpu1", "connection", "gpu1: the connection was lost"))
    with pytest.raises(Unreachable, match="was lost"):
        read(shell, Settings("gpu1", "gpu1", become=True))


def test_root_itself_needs_no_sudo(sudo: Path) -> None:
    shell = Shell(sudo, 0)
    assert read(shell, Settings("gpu1", "gpu1"))[WHO] == "0"
    assert shell.with_sudo == 0


def test_the_script_looks_at_sudo_only_where_a_probe_needs_it() -> None:
    permitted = Settings("gpu1", "gpu1", become=True)
    assert "sudo -n true" in facts.script(permitted, [WHO], "t")
    assert "sudo -n true" not in facts.script(permitted, [PLAIN], "t")
    assert "false && sudo" in facts.script(Settings("gpu1", "gpu1"), [WHO], "t")
