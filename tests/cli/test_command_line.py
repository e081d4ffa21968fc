"""The command line itself: what belongs to whom, and what a typing error says. No host is asked."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterkit.cli.launching import device_list, misplaced
from clusterkit.errors import InputError
from tests.schemas import validate


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def run(folder: Path, *arguments: str) -> Ended:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder.parent / "home"),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "clusterkit", *arguments],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=60,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose two hosts refuse every connection."""
    (tmp_path / "project").mkdir()
    project = tmp_path / "project"
    (project / "inventory.ini").write_text(
        "[nodes]\ngpu1 ansible_host=127.0.0.1\ngpu2 ansible_host=127.0.0.2\n"
        "[nodes:vars]\nansible_port=1\nansible_user=nobody\nnproc_per_node=2\n"
    )
    (project / "train.py").write_text("print('hello')\n")
    return project


def test_the_script_where_the_inventory_belongs(folder: Path) -> None:
    ended = run(folder, "launch", "train.py", "--lr")
    assert ended.code == 2
    ended = run(folder, "launch", "train.py", "5")
    assert ended.code == 2
    assert "train.py looks like a script" in ended.err
    assert "clusterkit launch inventory.ini train.py" in ended.err


def test_options_of_ours_may_stand_before_the_script(folder: Path) -> None:
    ended = run(
        folder, "launch", "--quiet", "inventory.ini", "--forks", "2", "--devices=0", "train.py", "--forks"
    )
    assert ended.code == 4
    assert "gpu[1-2]" in ended.err
    assert "refused" in ended.err
    assert "nothing was started" in ended.err


def test_options_of_ours_after_the_script_are_the_scripts_and_said() -> None:
    ours = {"--dry-run", "--env", "-q"}
    said = misplaced(ours, ["--lr", "0.1", "--dry-run", "--env=A=B", "-q"], "train.py")
    assert said == "note: --dry-run, --env=A=B stands after train.py and is passed on to it"
    assert misplaced(ours, ["--lr", "dry-run"], "train.py") == ""


def test_an_unreachable_fleet_as_json(folder: Path) -> None:
    ended = run(folder, "launch", "--json", "inventory.ini", "train.py")
    assert ended.code == 4
    document = json.loads(ended.out)
    validate("error", document)
    assert sorted(document["hosts"]) == ["gpu1", "gpu2"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["exec", "inventory.ini", "hostname"], 2, ""),
        (["exec", "inventory.ini"], 2, "the command has to stand after `--`"),
        (["exec", "inventory.ini", "--"], 2, "no command stands after `--`"),
        (["launch", "nosuch.ini", "train.py"], 2, "nosuch.ini: there is no such inventory file"),
        (["launch", "inventory.ini", "nosuch.py"], 2, "no such script: nosuch.py"),
        (["launch", "--run-mode", "ps", "inventory.ini", "train.py"], 2, "how many servers?"),
        (["launch", "--limit", "gpu9", "inventory.ini", "train.py"], 2, "gpu9"),
        (
            ["launch", "--env", "PADDLE_NNODES=1", "inventory.ini", "train.py"],
            2,
            "PADDLE_NNODES cannot be set",
        ),
        (["launch", "--env-file", "no.env", "inventory.ini", "train.py"], 2, "no.env: no such file"),
        (["launch", "--run-mode", "heter", "inventory.ini", "train.py"], 2, "there is no such mode"),
        (
            ["launch", "--servers", "2", "inventory.ini", "train.py"],
            2,
            "--servers is for parameter-server mode",
        ),
        (
            ["launch", "--detach", "--on-end", "cat", "inventory.ini", "train.py"],
            2,
            "--on-end and --detach do not go together: nobody is here when the run ends",
        ),
        (["logs"], 2, "no run is recorded"),
        (["logs", "--follow", "--output", "x"], 2, "do not go together"),
        (["logs", "--run", "x"], 2, "no run `x`"),
        (["status"], 2, "no run is recorded"),
        (["diagnose"], 2, "no run is recorded"),
        (["stop"], 2, "no run is recorded"),
        (["nosuch"], 2, "No such command"),
        (["runs"], 0, "no run is recorded"),
        (["runs", "--state", "dead"], 2, "there is no such state"),
        (["runs", "--since", "soon"], 2, "`soon` is not a time span"),
        (["runs", "prune"], 2, "--older-than or --keep"),
    ],
)
def test_typing_errors(folder: Path, arguments: list[str], code: int, words: str) -> None:
    ended = run(folder, *arguments)
    assert (ended.code, words in ended.err) == (code, True), ended.err
    assert "Traceback" not in ended.err


def test_version_help_and_completion(folder: Path) -> None:
    assert run(folder, "--version").out.startswith("clusterkit 0.")
    shown = run(folder, "--help").out
    for command in ("launch", "logs", "status", "diagnose", "runs", "stop", "exec", "inventory", "sandbox"):
        assert f"\n  {command} " in shown
    assert "..." not in shown.split("Commands:")[1], "a summary is cut off"
    assert "130 interrupted" in " ".join(shown.split())
    # The shell is found among the parents; the second command keeps bash from being replaced by the first.
    asked = f"{shlex.quote(sys.executable)} -m clusterkit --show-completion; true"
    shown = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout
    assert "complete -o default" in shown


def test_the_inventory_that_is_meant_is_found(folder: Path) -> None:
    listed = json.loads(run(folder, "inventory").out)
    assert listed["_meta"]["hostvars"]["gpu1"]["ansible_host"] == "127.0.0.1"
    assert "gpu2" in run(folder, "inventory", "--graph").out
    limited = json.loads(run(folder, "inventory", "--limit", "gpu2").out)
    assert list(limited["_meta"]["hostvars"]) == limited["nodes"]["hosts"] == ["gpu2"]
    assert "gpu1" not in run(folder, "inventory", "--graph", "--limit", "gpu2").out


def test_a_bug_of_ours_says_so_and_ends_with_70(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text(
        "import clusterkit.runs.record\ndef broken(*_):\n    raise RuntimeError('boom')\n"
        "clusterkit.runs.record.state_directory = broken\n"
    )
    env = {**os.environ, "PYTHONPATH": str(folder)}
    ended = subprocess.run(
        [sys.executable, "-m", "clusterkit", "runs"], env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 70
    assert "this is a bug of ours" in ended.stderr
    assert "boom" in ended.stderr


def test_device_lists() -> None:
    assert device_list("0, 2,3") == (0, 2, 3)
    assert device_list("all") is None
    with pytest.raises(InputError, match="not a list of device numbers"):
        device_list("0,a")


@pytest.mark.parametrize(
    ("command", "lacks"),
    [
        *((name, ()) for name in ("preflight", "reset", "launch", "exec")),
        *((name, ("--limit",)) for name in ("status", "stop", "diagnose")),
        # One stream a host: nothing is done to many at once.
        ("logs", ("--limit", "--forks")),
    ],
)
def test_commands_that_ask_hosts_share_their_options(
    command: str, lacks: tuple[str, ...], folder: Path
) -> None:
    shown = set(re.findall(r"--[a-z-]+", run(folder, command, "--help").out))
    common = {"--limit", "--forks", "--json", "--timeout", "--verbose"}
    assert common - shown == set(lacks)
