"""The main job: real Paddle on real hosts, and any rank's log."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]


def test_four_hosts_with_two_ranks_train(cluster: Cluster) -> None:
    for host in cluster.hosts:
        assert cluster.sandbox.sh(host, ["test", "-e", str(cluster.folder)]).returncode == 1
    finished = cluster.launch("allreduce.py", limit=200)
    assert finished.code == 0, finished.err
    status = cluster.status()
    assert status["state"] == "succeeded"
    assert [rank["host"] for rank in status["ranks"]] == [host for host in cluster.hosts for _ in range(2)]
    for rank in range(8):
        log = cluster.run("logs", "--rank", str(rank)).out
        assert f"rank {rank} of 8\n" in log
        assert "sum 36 expected 36\n" in log
    assert cluster.gone()


def test_unequal_rank_counts(unequal: Cluster, tmp_path: Path) -> None:
    finished = unequal.launch("allreduce.py", limit=200)
    assert finished.code == 0, finished.err
    places = [(rank["host"], rank["local_rank"]) for rank in unequal.status()["ranks"]]
    assert places == [
        ("node01", 0),
        ("node01", 1),
        ("node01", 2),
        ("node02", 0),
        ("node03", 0),
        ("node03", 1),
    ]
    gathered = unequal.run("logs", "--output", str(tmp_path / "logs"))
    assert gathered.code == 0, gathered.err
    for rank in range(6):
        text = (tmp_path / "logs" / f"rank-{rank:04d}.log").read_text()
        assert f"rank {rank} of 6\n" in text
        assert "sum 21 expected 21\n" in text


def test_lines_carry_rank_and_host(cluster: Cluster) -> None:
    finished = cluster.launch("drill.py", "1")
    assert finished.code == 0, finished.err
    for rank in range(8):
        host = cluster.hosts[rank // 2]
        assert f"[{rank} {host}] rank {rank} of 8\n" in finished.out
    assert re.search(r"run \S+ succeeded$", finished.last_line)


def test_quiet_shows_the_summary_only(cluster: Cluster) -> None:
    finished = cluster.launch("--quiet", "drill.py", "1")
    assert finished.code == 0, finished.err
    assert finished.out == ""
    assert finished.err.count("\n") == 1
    assert "succeeded" in finished.err


def test_json_is_one_event_a_line(cluster: Cluster) -> None:
    finished = cluster.run("launch", "--json", "INVENTORY", "drill.py", "1")
    assert finished.code == 0, finished.err
    assert len(finished.events("planned")) == 1
    assert sorted(event["host"] for event in finished.events("staged")) == list(cluster.hosts)
    assert sorted(event["host"] for event in finished.events("started")) == list(cluster.hosts)
    assert sorted(event["host"] for event in finished.events("joined")) == list(cluster.hosts)
    assert len([event for event in finished.events("line") if "done after" in event["line"]]) == 8
    (end,) = finished.events("ended")
    assert (end["state"], end["exit_code"], len(end["ranks"])) == ("succeeded", 0, 8)
    for line in finished.out.splitlines():
        validate("launch", json.loads(line))
    validate("status", cluster.status())
    for command in (["runs", "--json"], ["stop", "--json"], ["exec", "--json", "INVENTORY", "--", "true"]):
        validate(command[0], json.loads(cluster.run(*command).out))


def test_the_second_launch_sends_only_what_changed(cluster: Cluster) -> None:
    first = cluster.run("launch", "--json", "INVENTORY", "drill.py", "0.2")
    (cluster.folder / "new.txt").write_text("x" * 1000)
    second = cluster.run("launch", "--json", "INVENTORY", "drill.py", "0.2")
    assert first.code == second.code == 0, first.err + second.err
    assert all(event["received_bytes"] > 1000 for event in first.events("staged"))
    assert [event["received_bytes"] for event in second.events("staged")] == [1000] * 4


def test_code_that_is_on_the_hosts_already_is_not_sent(cluster: Cluster) -> None:
    """As on a shared mount: the same folder, at the same place."""
    folder, script = cluster.folder, (cluster.folder / "drill.py").read_text()
    nowhere = cluster.launch("--no-sync", "drill.py", "0.2")
    assert nowhere.code == 1
    assert f"{folder} is not a folder on this host, and --no-sync sends no code" in nowhere.err
    for host in cluster.hosts:
        there = ["sh", "-c", 'mkdir -p "$1" && cat >"$1/drill.py"', "sh", str(folder)]
        done = cluster.sandbox.sh(host, there, stdin=script.replace("rank {", "mounted rank {"))
        assert done.returncode == 0, done.stderr
    finished = cluster.run("launch", "--json", "--no-sync", "INVENTORY", "drill.py", "0.2")
    assert finished.code == 0, finished.err
    assert [event["received_bytes"] for event in finished.events("staged")] == [0] * 4
    lines = [event["line"] for event in finished.events("line")]
    assert sum("mounted rank" in line and "done after" in line for line in lines) == 8
