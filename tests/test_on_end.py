"""The command of --on-end: what it gets, how its failures are told, and that it cannot last."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from clusterkit.interrupts import Interrupts
from clusterkit.on_end import tell_end

STATUS: dict[str, Any] = {"run_id": "r", "state": "failed", "reason": "x" * 200_000}


def test_the_status_is_on_its_stdin_and_its_words_are_not_on_our_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tell_end(f"cat > {tmp_path}/got; echo sent; echo oh >&2", STATUS, Interrupts()) == ""
    assert json.loads((tmp_path / "got").read_text()) == STATUS
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "sent\noh\n")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("true", ""),
        ("exit 3", "the command of --on-end exited with 3"),
        ("kill -9 $$", "the command of --on-end got signal 9"),
        ("/nowhere/notify --token word 2>/dev/null", "the command of --on-end exited with 127"),
    ],
)
def test_how_it_ends(command: str, sentence: str) -> None:
    assert tell_end(command, STATUS, Interrupts()) == sentence


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_takes_too_long_is_ended_with_all_its_children(tmp_path: Path) -> None:
    # Neither the command nor its child heeds SIGTERM.
    command = f"trap '' TERM; sleep 300 & echo $! > {tmp_path}/pid; sleep 300"
    said = tell_end(command, STATUS, Interrupts(), limit=1.0)
    assert said == "the command of --on-end did not end within 1 s and was ended"
    child = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 30
    while is_alive(child):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_ctrl_c_while_it_runs() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert tell_end("exit 0", STATUS, interrupts) == "", "the one that ended the run does not count"
        said = tell_end(f"kill -INT {os.getpid()}; sleep 300", STATUS, interrupts)
    assert said == "the command of --on-end was interrupted and was ended"
