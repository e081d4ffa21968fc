"""Slow lines: few hosts at once, progress while they run, last words at the end."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from clusterkit.errors import Interrupted, Unreachable
from clusterkit.inventory.model import Settings
from clusterkit.paced import Paced
from clusterkit.remote.local import LocalRemote
from clusterkit.remote.options import ConnectOptions
from clusterkit.remote.protocol import Stream
from clusterkit.steps.engine import Fleet, Pace, State, Step


class Slow(Step):
    """Two hosts at a time; its progress is its last line."""

    name = "slow"
    root = False
    pace = Pace(2, "tail -n 1")

    def desired(self, host: str, fleet: Fleet) -> State:
        return {}

    def actual(self, host: str, fleet: Fleet) -> State:
        return {}


def remote(alias: str = "here") -> LocalRemote:
    return LocalRemote(Settings(alias, "127.0.0.1", connection="local"), ConnectOptions())


def test_progress_is_told_while_the_lines_run_and_the_last_words_at_their_end(tmp_path: Path) -> None:
    told: list[tuple[str, str, str]] = []
    heard = threading.Event()

    def tell(host: str, step: str, line: str) -> None:
        told.append((host, step, line))
        if "half" in line:
            heard.set()
            (tmp_path / "go").touch()

    paced = Paced([Slow()], threading.Event(), tell)
    lines = [
        "echo 'it is half'",
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done",
        "echo broken >&2",
        "exit 3",
    ]
    assert paced.run(remote(), Slow(), lines) == "broken"
    assert heard.is_set()
    assert ("here", "slow", "it is half") in told
    assert paced.run(remote(), Slow(), ["echo well"]) == ""


def test_no_more_hosts_at_once_than_the_step_says(tmp_path: Path) -> None:
    paced = Paced([Slow()], threading.Event(), lambda *_: None)
    lines = [
        f"mkdir {tmp_path}/$$",
        f"ls {tmp_path} | grep -c '^[0-9]' >>{tmp_path}/counted",
        "sleep 0.2",
        f"rmdir {tmp_path}/$$",
    ]
    threads = [threading.Thread(target=paced.run, args=(remote(), Slow(), lines)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    counted = [int(line) for line in (tmp_path / "counted").read_text().split()]
    assert len(counted) == 5
    assert max(counted) == 2


def test_a_host_that_waits_for_its_turn_gives_up_when_it_is_cancelled() -> None:
    cancel, begun = threading.Event(), threading.Event()
    paced = Paced([Slow()], cancel, lambda *_: begun.set())
    threads = [
        threading.Thread(target=paced.run, args=(remote(), Slow(), ["echo here", "sleep 3"]), daemon=True)
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    time.sleep(0.2)  # the second has its turn too
    cancel.set()
    with pytest.raises(Interrupted):
        paced.run(remote("third"), Slow(), ["true"])


class Gone(LocalRemote):
    """A host that cannot be reached any more."""

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        raise Unreachable(self.alias, "connection", "here: the connection was lost")


def test_a_lost_host_is_told_and_keeps_no_turn() -> None:
    paced = Paced([Slow()], threading.Event(), lambda *_: None)
    gone = Gone(Settings("here", "127.0.0.1", connection="local"), ConnectOptions())
    for _ in range(3):
        assert paced.run(gone, Slow(), ["true"]) == "here: the connection was lost"
    assert paced.run(remote(), Slow(), ["true"]) == ""


def test_nothing_of_the_script_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    paced = Paced([Slow()], threading.Event(), lambda *_: None)
    assert paced.run(remote(), Slow(), ["exit 4"]) == "its commands ended with status 4"
    assert list(tmp_path.iterdir()) == []
