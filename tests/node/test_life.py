"""What a node makes of its launcher's and its ranks' ends, where real processes would only race."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from clusterkit.node import life, plan, processes
from clusterkit.node.life import Life

from .loopback import cluster


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    # A supervisor reaps every child of its process; here that would be children of other tests.
    monkeypatch.setattr(Life, "_reap", lambda _self: None)
    # And what descends from this process belongs to other tests too: a sandbox that lives for the session.
    monkeypatch.setattr(processes, "of_run", lambda *_: {})
    with cluster(tmp_path, "", ranks_per_node=(2,)) as run:
        files, known = plan.open_run(str(run.run_dir(0)))
    made = Life(known, files, 0o022)
    made.state = "running"
    return made


def rank_ended(node: Life, monkeypatch: pytest.MonkeyPatch, at: float, **how: Any) -> None:
    failure = {**life.NO_FAILURE, "kind": "rank", "rank": 1, "at": at, **how}
    monkeypatch.setattr(node.ranks, "failure", lambda: failure)


def launcher_ended(node: Life, status: int, at: float) -> None:
    node.launcher.pid = 1
    node.launcher.ended(status, at)


@pytest.mark.parametrize("how", [{"signal": signal.SIGTERM}, {"exit_code": 143}])
@pytest.mark.parametrize("after", [-0.05, 0.0, 3.0])
def test_ranks_that_die_of_their_launchers_death_are_not_blamed(
    node: Life, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], after: float
) -> None:
    now = time.time()
    launcher_ended(node, signal.SIGKILL, now)
    rank_ended(node, monkeypatch, now + after, **how)
    node.observe(time.monotonic())
    assert node.failure is not None
    assert (node.failure["kind"], node.failure["signal"]) == ("launcher", signal.SIGKILL)
    assert node.failure["at"] <= now + min(after, 0)


def test_ranks_that_are_seen_to_die_before_their_launcher_are_not_blamed(
    node: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = time.time()
    node.launcher.pid = 1
    rank_ended(node, monkeypatch, at, signal=signal.SIGTERM)
    now = time.monotonic()
    node.observe(now)
    assert node.failure is None
    launcher_ended(node, signal.SIGABRT, at + 0.05)
    node.observe(now + 0.05)
    assert node.failure is not None
    assert (node.failure["kind"], node.failure["signal"]) == ("launcher", signal.SIGABRT)


def test_a_rank_that_gets_sigterm_alone_is_blamed(node: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    node.launcher.pid = 1
    rank_ended(node, monkeypatch, time.time(), signal=signal.SIGTERM)
    now = time.monotonic()
    node.observe(now)
    node.observe(now + 1.1)
    assert node.failure is not None
    assert (node.failure["kind"], node.failure["signal"]) == ("rank", signal.SIGTERM)


def test_a_rank_that_failed_before_its_launcher_was_killed_is_blamed(
    node: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    launcher_ended(node, signal.SIGKILL, now)
    rank_ended(node, monkeypatch, now - 0.2, exit_code=7)
    node.observe(time.monotonic())
    assert node.failure is not None
    assert (node.failure["kind"], node.failure["exit_code"]) == ("rank", 7)


def test_a_launcher_that_fails_after_its_rank_is_not_blamed(
    node: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local rank 1 exits 7, and the launcher 241: the sibling's SIGTERM."""
    now = time.time()
    launcher_ended(node, 241 << 8, now)
    rank_ended(node, monkeypatch, now - 1, exit_code=7)
    node.observe(time.monotonic())
    assert node.failure is not None
    assert (node.failure["kind"], node.failure["rank"]) == ("rank", 1)


def test_a_launcher_that_does_not_end_after_its_ranks_is_ended_by_us(
    node: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [{"started_at": 1.0, "ended_at": 2.0, "exit_code": 0, "signal": None}] * 2
    monkeypatch.setattr(node.ranks, "states", lambda: states)
    monkeypatch.setattr(node.ranks, "failure", lambda: None)
    asked = []
    monkeypatch.setattr(node.launcher, "ask_to_stop", lambda: asked.append(1))
    now = time.monotonic()
    node.observe(now)
    node.observe(now + 29)
    assert (node.state, asked) == ("running", [])
    node.observe(now + 31)
    assert asked == [1]
    # Nothing of it runs here, so it has ended in the same look.
    assert (node.state, node.failure) == ("ended", None)


@pytest.mark.parametrize(("started_at", "killed"), [(None, True), (1.0, False)])
def test_the_grace_is_for_scripts_that_run(
    node: Life, monkeypatch: pytest.MonkeyPatch, started_at: float | None, killed: bool
) -> None:
    """A launcher that ignores SIGTERM, with ranks that never started, and with ranks that run."""
    states = [{"started_at": started_at, "ended_at": None, "exit_code": None, "signal": None}] * 2
    monkeypatch.setattr(node.ranks, "states", lambda: states)
    stuck = {4_000_000: processes.Process(4_000_000, 1, "S", 1)}
    monkeypatch.setattr(processes, "of_run", lambda *_: stuck)
    sent: list[int] = []
    monkeypatch.setattr(processes, "send", lambda signum, _: sent.append(signum))
    now = time.monotonic()
    node.stop(40, now)
    node.observe(now)
    node.observe(now + 4)
    assert signal.SIGKILL not in sent
    node.observe(now + 6)
    assert (signal.SIGKILL in sent) is killed
    node.observe(now + 41)
    assert signal.SIGKILL in sent


def test_a_node_without_a_place_for_logs_says_so(node: Life) -> None:
    node.state = "gate"
    log_dir = Path(node._plan.log_dir)
    log_dir.rmdir()
    log_dir.write_text("a file")
    node.prepare()
    assert node.failure is not None
    assert node.failure["kind"] == "launcher"
    assert str(log_dir) in node.failure["detail"]
    assert node.launcher.pid is None


def test_a_missing_working_directory_is_said_before_the_start(node: Life) -> None:
    node.state = "gate"
    workdir = Path(node._plan.workdir)
    for entry in workdir.iterdir():
        entry.unlink()
    workdir.rmdir()
    node.prepare()
    assert node.launcher.pid is not None
    _, status = os.waitpid(node.launcher.pid, 0)
    node.launcher.ended(status, time.time())
    node.observe(time.monotonic())
    assert node.failure is not None
    assert f"the launcher could not be started: {workdir}: No such file" in node.failure["detail"]
