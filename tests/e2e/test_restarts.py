"""A job that fails is started again, resumes at the right step, and every attempt has its own logs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(400)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"
STEP = re.compile(r"rank \d+/\d+ step (\d+) loss")


def kill_one(cluster: Cluster, host: str, word: str, local_rank: str = "") -> None:
    """SIGKILL the one process of a run on the host with this word in its command line."""
    found = [
        process.pid
        for process in cluster.sandbox.processes(host)
        if word in process.argv
        and "agent.pyz" not in " ".join(process.argv[:4]) * bool(local_rank)
        and process.environment.get("PADDLE_LOCAL_RANK", "") == local_rank
        and "CLUSTERKIT_RUN_ID" in process.environment
    ]
    assert len(found) == 1, found
    os.kill(found[0], signal.SIGKILL)


def steps(cluster: Cluster, rank: int, attempt: int) -> list[int]:
    """The steps that a rank told in an attempt."""
    shown = cluster.run("logs", "--rank", str(rank), "--attempt", str(attempt))
    assert shown.code == 0, shown.err
    return [int(step) for step in STEP.findall(shown.out)]


def test_a_killed_rank_and_the_job_resumes_at_the_right_step(three: Cluster) -> None:
    shutil.copy(EXAMPLE, three.folder)
    command = ["launch", "--json", "--max-restarts", "2", "INVENTORY", "train.py", "--steps", "60"]
    launch = three.start(*command, "--save-every", "20", "--log-every", "1", "--step-time", "0.1")
    launch.until(r"rank 3/6 step 31 ", limit=120)
    kill_one(three, "node02", "train.py", local_rank="1")
    finished = launch.wait(180)
    assert finished.code == 0, finished.err
    for line in finished.out.splitlines():
        validate("launch", json.loads(line))
    (again,) = finished.events("restarted")
    assert (again["attempt"], again["rank"], again["host"], again["signal"]) == (1, 3, "node02", 9)
    status = three.status()
    validate("status", status)
    assert (status["state"], status["attempt"]) == ("succeeded", 1)
    ends = [(each["state"], each["exit_code"], each["cause"]) for each in status["attempts"]]
    assert ends == [("failed", 137, "rank"), ("succeeded", 0, None)]
    assert "rank 3 on node02 was killed by signal 9" in status["attempts"][0]["reason"]
    lines = finished.events("line")
    for rank in (0, 3, 5):
        first, second = steps(three, rank, 0), steps(three, rank, 1)
        assert first == list(range(1, first[-1] + 1))
        saved = first[-1] // 20 * 20
        assert second == list(range(saved + 1, 61)), "it did not resume from the last checkpoint"
        told = [each["attempt"] for each in lines if each["rank"] == rank]
        assert told == sorted(told), "lines of two attempts are mixed"
    assert "resumed from step 20" in three.run("logs", "--rank", "4").out
    missing = three.run("logs", "--attempt", "7")
    assert (missing.code, "its attempts are 0-1" in missing.err) == (2, True)
    assert three.gone()


def test_a_killed_launcher_of_a_job_that_nobody_follows(three: Cluster) -> None:
    """As with a closed laptop: node 0 decides alone."""
    detached = three.launch("--detach", "--max-restarts", "1", "drill.py", "15")
    assert detached.code == 0, detached.err
    kill_one(three, "node02", "paddle.distributed.launch")
    end = time.monotonic() + 150
    while (status := three.status())["exit_code"] is None:
        assert time.monotonic() < end, f"still not over: {status}"
        time.sleep(1)
    assert (status["state"], status["attempt"]) == ("succeeded", 1)
    assert status["attempts"][0]["reason"].startswith("the launcher on node02 failed: killed by signal 9")
    assert {rank["exit_code"] for rank in status["ranks"]} == {0}
    last = three.run("logs", "--rank", "2").out
    assert "rank 2 done after" in last
    assert "rank 2 done after" not in three.run("logs", "--rank", "2", "--attempt", "0").out
    assert three.gone()
