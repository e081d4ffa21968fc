"""`clusterkit sandbox …` as a person types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.cli.sandbox import _bind
from clusterkit.errors import InputError
from clusterkit.sandbox import Bind, lifecycle
from tests.sandbox.naming import unique


def clusterkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clusterkit", "sandbox", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_binds_are_read_as_docker_writes_them(tmp_path: Path) -> None:
    assert _bind(str(tmp_path)) == Bind(str(tmp_path), str(tmp_path))
    assert _bind(f"{tmp_path}:/data") == Bind(str(tmp_path), "/data")
    assert _bind(f"{tmp_path}:/data:ro") == Bind(str(tmp_path), "/data", True)
    assert _bind(f"{tmp_path}:ro") == Bind(str(tmp_path), str(tmp_path), True)
    with pytest.raises(InputError, match="does not exist"):
        _bind(f"{tmp_path}/none")
    with pytest.raises(InputError, match="cannot be read"):
        _bind(f"{tmp_path}:data")


def test_help_names_every_drill(tmp_path: Path) -> None:
    done = clusterkit("--help", cwd=tmp_path)
    assert done.returncode == 0
    for command in ("up", "status", "down", "kill", "start", "cut", "mend", "sshd", "sh"):
        assert f" {command} " in done.stdout


def test_a_command_on_what_is_not_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to get as far")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = clusterkit("kill", "node01", cwd=tmp_path)
    assert done.returncode == 2
    assert "sandbox sandbox is not up" in done.stderr


@pytest.mark.hosts
def test_a_rehearsal_from_up_to_down(state_home: Path, tmp_path: Path) -> None:
    name = ("--name", unique("cli"))
    try:
        up = clusterkit("up", "--hosts", "2", *name, cwd=tmp_path)
        assert up.returncode == 0, up.stderr
        assert f"inventory: {tmp_path}/sandbox.ini" in up.stdout
        again = clusterkit("up", "--hosts", "2", *name, cwd=tmp_path)
        assert f"sandbox {name[1]} is up: 2 hosts" in again.stdout
        differs = clusterkit("up", "--hosts", "3", *name, cwd=tmp_path)
        assert differs.returncode == 1
        assert "it has 2 hosts, not 3" in differs.stderr
        assert clusterkit("sh", "node02", *name, "--", "sh", "-c", "exit 7", cwd=tmp_path).returncode == 7
        assert clusterkit("sh", "node02", *name, "--", "hostname", cwd=tmp_path).stdout == "node02\n"
        assert clusterkit("cut", "node01", *name, cwd=tmp_path).returncode == 0
        assert clusterkit("kill", "node02", *name, cwd=tmp_path).returncode == 0
        assert "node01  10.77." in clusterkit("status", *name, cwd=tmp_path).stdout
        document = json.loads(clusterkit("status", *name, "--json", cwd=tmp_path).stdout)
        assert [host["condition"] for host in document["sandboxes"][0]["hosts"]] == ["cut", "killed"]
        assert clusterkit("mend", "node01", *name, cwd=tmp_path).returncode == 0
        assert clusterkit("start", "node02", *name, cwd=tmp_path).returncode == 0
        assert clusterkit("sshd", "node02", "restart", *name, cwd=tmp_path).returncode == 0
        unknown = clusterkit("kill", "node09", *name, cwd=tmp_path)
        assert unknown.returncode == 2
        assert "has no host 'node09'" in unknown.stderr
        assert "its hosts are node01, node02" in unknown.stderr
        down = clusterkit("down", *name, cwd=tmp_path)
        assert (down.returncode, down.stdout) == (0, f"sandbox {name[1]} is down\n")
        assert "was down already" in clusterkit("down", *name, cwd=tmp_path).stdout
    finally:
        lifecycle.down(name[1], forget=True)
