"""Where a sandbox cannot work it says so, with the remedy, before it has touched anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from clusterkit.errors import ClusterkitError, InputError, NotFound
from clusterkit.sandbox import Sandbox, SandboxSpec, User, lifecycle, requirements


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_without_root(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterkitError, match="needs root") as caught:
        Sandbox.up(SandboxSpec.of(1, name="never"), home / "sandbox.ini")
    assert "sudo" in caught.value.hint
    assert list(home.iterdir()) == []


def test_on_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ClusterkitError, match="needs Linux namespaces, and this machine runs darwin"):
        requirements.check()


def test_missing_programs_come_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        requirements, "find", lambda program: None if program in ("ip", "sshd", "sudo") else "/x"
    )
    with pytest.raises(ClusterkitError, match="needs ip, sshd") as caught:
        requirements.check()
    assert caught.value.hint == "on Debian: apt-get install iproute2 openssh-server"
    with pytest.raises(ClusterkitError, match="sudo"):
        requirements.check(SandboxSpec.of(1, user=User("alice")))


def test_a_sandbox_that_is_not_up(home: Path) -> None:
    with pytest.raises(NotFound, match="sandbox nothing is not up") as caught:
        Sandbox.open("nothing")
    assert "sandbox up" in caught.value.hint


@pytest.mark.hosts
def test_down_of_what_never_was(home: Path) -> None:
    assert lifecycle.down("never-was").notes == ("there is no sandbox never-was",)


@pytest.mark.hosts
@pytest.mark.parametrize("name", ["No Such", "../escape", ""])
def test_a_wrong_name_is_bad_input(name: str, home: Path) -> None:
    with pytest.raises(InputError):
        lifecycle.down(name, forget=True)
