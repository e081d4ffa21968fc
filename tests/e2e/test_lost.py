"""Power cuts, pulled cables, and our own way to a host cut off while the training network is whole."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.cluster import Cluster, Running
from tests.e2e.records import all_gone_on, newest_run, node_state, running_there, wait_until_ended

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]

# Beyond --node-timeout, until everything that can still be stopped has stopped.
MARGIN_S = 10.0


@contextmanager
def no_ssh(cluster: Cluster, host: str) -> Iterator[None]:
    """This machine's packets to the host are dropped without a word; the nodes reach each other."""
    cluster.sandbox.block_controller(host)
    try:
        yield
    finally:
        cluster.sandbox.unblock_controller(host)


def training(cluster: Cluster, *arguments: str) -> Running:
    """A launch whose ranks all run."""
    launch = cluster.start("launch", *arguments)
    launch.until("all 3 nodes joined")
    return launch


def assert_whole(text: str, rank: int, what: str) -> None:
    """Every numbered line of this rank stands there once and in order."""
    lines = [line for line in text.splitlines() if f"rank {rank} " in line]
    count = len(lines) - 2  # "rank N of M" is the first, "rank N done after COUNT lines" the last.
    tails = [line[line.index(f"rank {rank} ") :] for line in lines]
    assert tails[0] == f"rank {rank} of 6", what
    assert tails[1:-1] == [f"rank {rank} line {number}" for number in range(count)], what
    assert tails[-1] == f"rank {rank} done after {count} lines", what


def assert_logs_whole(cluster: Cluster, shown: str) -> None:
    """What was shown and gathered is what the ranks wrote, byte for byte: nothing is lost or doubled."""
    gathered = cluster.state / "clusterkit" / "runs" / newest_run(cluster) / "logs"
    for entry in cluster.status()["ranks"]:
        rank = entry["rank"]
        there = cluster.sandbox.read(entry["host"], entry["log"])
        assert (gathered / f"rank-{rank:04d}.log").read_bytes() == there
        assert_whole(there.decode(), rank, f"the log of rank {rank} on its host")
        assert_whole(shown, rank, f"the shown lines of rank {rank}")


def test_a_host_without_power_is_lost(three: Cluster) -> None:
    """With the default --node-timeout of 20 s."""
    launch = training(three, "INVENTORY", "drill.py", "120")
    launch.until(r"\[2 node02\] rank 2 line 0")
    began = time.time()
    three.sandbox.kill("node02")
    finished = launch.wait()
    ended = wait_until_ended(three, ("node01", "node03"))
    assert max(ended.values()) - began < 20 + MARGIN_S
    assert finished.code == 4, finished.err
    assert "lost (exit 4): node02 was lost: node 0 has heard nothing from it since" in finished.last_line
    assert "logs of ranks 2-3 are incomplete: node02 did not answer" in finished.err
    status = three.status()
    assert (status["state"], status["exit_code"], status["cause"]) == ("lost", 4, "node")
    assert [node["state"] for node in status["nodes"]] == ["ended", "lost", "ended"]
    assert three.gone()
    gathered = three.run("logs", "--rank", "2")
    assert "rank 2 line 0\n" in gathered.out, gathered.err


def test_node_0_without_power_is_lost(three: Cluster) -> None:
    """Nobody is left to decide: each of the others stops by itself."""
    launch = training(three, "--node-timeout", "5", "INVENTORY", "drill.py", "120")
    began = time.time()
    three.sandbox.kill("node01")
    finished = launch.wait()
    ended = wait_until_ended(three, ("node02", "node03"))
    assert max(ended.values()) - began < 5 + MARGIN_S
    assert finished.code == 4, finished.err
    assert "lost (exit 4): node01 was lost" in finished.last_line
    assert [node["state"] for node in three.status()["nodes"]] == ["lost", "ended", "ended"]
    assert three.gone()


def test_a_cable_that_is_back_soon_goes_unnoticed(three: Cluster) -> None:
    launch = training(three, "INVENTORY", "drill.py", "20", "--rate", "50")
    three.sandbox.cut("node02")
    time.sleep(5)
    three.sandbox.mend("node02")
    finished = launch.wait()
    assert finished.code == 0, finished.err
    assert_logs_whole(three, finished.out)
    assert three.gone()


@pytest.mark.parametrize("host", ["node01", "node03"], ids=["node 0", "another node"])
def test_a_node_that_is_cut_off_stops_its_own_ranks(three: Cluster, host: str) -> None:
    launch = training(three, "--node-timeout", "5", "INVENTORY", "drill.py", "120")
    began = time.time()
    three.sandbox.cut(host)
    ended = wait_until_ended(three, three.hosts)
    assert max(ended.values()) - began < 5 + MARGIN_S
    assert all_gone_on(three, host), "the ranks of the cut node still run"
    assert node_state(three, host)["decision"]["outcome"] == "lost"
    finished = launch.wait()
    assert finished.code == 4, finished.err
    assert f"lost (exit 4): {host} was lost" in finished.last_line
    three.sandbox.mend(host)
    assert three.gone()


def test_the_job_goes_on_while_we_cannot_reach_a_host(three: Cluster) -> None:
    launch = training(three, "INVENTORY", "drill.py", "45", "--rate", "20")
    with no_ssh(three, "node03"):
        launch.until("unobserved: node03 .*this says nothing about its training")
        observed = three.run("status", "--json", "--timeout", "3")
        status = json.loads(observed.out)
        assert status["state"] == "running"
        assert [node["state"] for node in status["nodes"]] == ["running", "running", "unobserved"]
        assert len(running_there(three, "node03")) > 2
    launch.until("node03 is observed again")
    finished = launch.wait()
    assert finished.code == 0, finished.err
    assert three.status()["state"] == "succeeded"
    assert_logs_whole(three, finished.out)
    assert three.gone()
