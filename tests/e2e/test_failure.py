"""A rank fails: the job ends everywhere within seconds, with that rank's exit code, and it is named."""

from __future__ import annotations

import signal
import time

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.records import node_state, rank_ended_at, wait_until_ended

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]

# The issue's own limit, from the failed rank's end to the end of the last node.
STOP_LIMIT_S = 10.0


def stopped_after(cluster: Cluster, host: str, local_rank: int) -> float:
    """Seconds from the end of this rank to the end of the last node."""
    ended = wait_until_ended(cluster, cluster.hosts)
    return max(ended.values()) - rank_ended_at(cluster, host, local_rank)


def status_once_over(cluster: Cluster, limit: float = 60.0) -> dict[str, object]:
    """`status --json` once it says that the run is over."""
    end = time.monotonic() + limit
    while True:
        status = cluster.status()
        if status["exit_code"] is not None:
            return status
        assert time.monotonic() < end, f"still not over: {status}"
        time.sleep(0.5)


def test_a_failing_rank_ends_the_job_and_those_that_fell_with_it_are_not_blamed(three: Cluster) -> None:
    """Real training: the others fail first, with connection errors, while the broken rank still ends."""
    finished = three.launch("broken.py", "5:7", limit=200)
    assert finished.code == 7, finished.err + finished.out
    status = three.status()
    assert (status["state"], status["exit_code"], status["cause"]) == ("failed", 7, "rank")
    assert status["root"]["lines"][-1] == "the disk is full"
    others = [rank for rank in status["ranks"] if rank["rank"] != 5]
    assert {rank["exit_code"] for rank in others} == {1}, "the others did not fail by themselves"
    for rank in range(4):
        assert "RuntimeError" in three.run("logs", "--rank", str(rank)).out
    assert rank_ended_at(three, "node01", 0) < rank_ended_at(three, "node03", 1)
    assert finished.last_line.endswith("failed (exit 7): rank 5 on node03 exited with 7")
    assert "last lines of rank 5 on node03:" in finished.err
    assert "  the disk is full" in finished.err
    assert "RuntimeError" not in finished.err, "the end shows a line of a rank that is not to blame"
    assert finished.err.count("stopping all nodes") == 1
    assert stopped_after(three, "node03", 1) < STOP_LIMIT_S
    assert three.gone()


def test_a_rank_killed_by_a_signal(three: Cluster) -> None:
    """As the kernel's out-of-memory killer ends one."""
    finished = three.launch("drill.py", "120", "--fail", "2:-9:1")
    assert finished.code == 128 + signal.SIGKILL, finished.err
    assert "failed (exit 137): rank 2 on node02 was killed by signal 9 (SIGKILL" in finished.last_line
    root = three.status()["root"]
    assert (root["rank"], root["host"], root["signal"]) == (2, "node02", 9)
    assert stopped_after(three, "node02", 0) < STOP_LIMIT_S
    assert three.gone()


def test_a_failure_of_a_detached_job(three: Cluster) -> None:
    detached = three.launch("--detach", "drill.py", "120", "--fail", "5:-11:1")
    assert detached.code == 0, detached.err
    assert stopped_after(three, "node03", 1) < STOP_LIMIT_S
    assert three.gone()
    status = status_once_over(three)
    assert (status["state"], status["exit_code"]) == ("failed", 128 + signal.SIGSEGV)
    assert status["reason"] == "rank 5 on node03 was killed by signal 11 (SIGSEGV)"
    assert "something broke" in three.run("logs", "--rank", "5").out


def test_a_failure_after_the_controller_was_killed(three: Cluster) -> None:
    launch = three.start("launch", "INVENTORY", "drill.py", "120", "--fail", "5:7:3")
    launch.until("all 3 nodes joined")
    launch.send(signal.SIGKILL)
    launch.process.wait(10)
    assert node_state(three, "node03")["state"] == "running", "it failed before the controller was killed"
    assert stopped_after(three, "node03", 1) < STOP_LIMIT_S
    assert three.gone()
    status = status_once_over(three)
    assert (status["state"], status["exit_code"], status["cause"]) == ("failed", 7, "rank")
    assert status["reason"] == "rank 5 on node03 exited with 7"
