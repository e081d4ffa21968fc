"""What starts and watches the ranks is killed on one host: the job ends and says why, nothing is left."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.e2e.cluster import Cluster, Running
from tests.e2e.records import wait_until_ended

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]


def training(cluster: Cluster) -> Running:
    """A launch whose ranks all run."""
    launch = cluster.start("launch", "--node-timeout", "5", "INVENTORY", "drill.py", "120")
    launch.until("all 3 nodes joined")
    return launch


def kill_on(cluster: Cluster, host: str, word: str) -> float:
    """SIGKILL the one process of a run on the host that has this word in its command line; the time of it."""
    found = [
        process
        for process in cluster.sandbox.processes(host)
        if word in process.argv and "CLUSTERKIT_RUN_ID" in process.environment
    ]
    assert len(found) == 1, [process.argv for process in found]
    os.kill(found[0].pid, signal.SIGKILL)
    return time.time()


def test_the_launcher_of_a_node_is_killed(three: Cluster) -> None:
    launch = training(three)
    killed_at = kill_on(three, "node02", "paddle.distributed.launch")
    finished = launch.wait()
    assert finished.code == 1, finished.err
    assert finished.last_line.endswith("failed (exit 1): the launcher on node02 failed: killed by signal 9")
    assert max(wait_until_ended(three, three.hosts).values()) - killed_at < 10
    assert three.status()["cause"] == "node"
    assert three.gone()


@pytest.mark.parametrize("host", ["node01", "node02"], ids=["node 0", "another node"])
def test_the_supervisor_of_a_node_is_killed(three: Cluster, host: str) -> None:
    """Its ranks end with it; the other nodes miss it for --node-timeout, then they stop."""
    launch = training(three)
    killed_at = kill_on(three, host, "supervise")
    finished = launch.wait()
    assert finished.code == 4, finished.err
    assert f"lost (exit 4): the supervisor on {host} died: killed" in finished.last_line
    others = tuple(other for other in three.hosts if other != host)
    assert max(wait_until_ended(three, others).values()) - killed_at < 5 + 10
    assert [node["state"] for node in three.status()["nodes"] if node["host"] == host] == ["lost"]
    assert three.gone()
