"""Nodes that cannot find each other: who has come, who has not, and why; and no world but the planned one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from clusterkit.planning import templating
from tests.e2e.cluster import Cluster

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]


@contextmanager
def dropped(cluster: Cluster, host: str, what: str) -> Iterator[None]:
    """What leaves the host and matches is dropped without a word, as by a firewall between the hosts."""
    block = [
        "add table inet drill",
        "add chain inet drill out { type filter hook output priority 0; }",
        f"add rule inet drill out {what} drop",
    ]
    done = cluster.sandbox.sh(host, ["nft", "-f", "-"], stdin="\n".join(block) + "\n")
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        cluster.sandbox.sh(host, ["nft", "delete", "table", "inet", "drill"])


def test_a_launcher_that_cannot_reach_the_master(three: Cluster) -> None:
    launch = three.start("launch", "--join-timeout", "20", "INVENTORY", "drill.py", "1")
    address, port = launch.until(r"master [\d.]+:\d+").split()[1].split(":")
    with dropped(three, "node03", f"ip daddr {address} tcp dport {port}"):
        finished = launch.wait()
    assert finished.code == 1, finished.err
    last = finished.last_line
    assert "not all nodes joined in time: after 20 s missing: node03 (its launcher cannot reach" in last
    assert f"{address}:{port}: timed out" in last
    assert last.endswith("; joined: node01, node02")
    assert "joining: waiting for node03" in finished.err
    assert three.gone()


def test_a_host_that_cannot_reach_node_0(three: Cluster) -> None:
    """Nothing is started anywhere, and nothing stays behind."""
    address = three.sandbox.addresses("node01")[0]
    with dropped(three, "node03", f"ip daddr {address} tcp dport 1024-65535"):
        finished = three.launch("drill.py", "1")
    assert finished.code == 1, finished.err
    why = rf"^node03: could not reach node 0 \(node01\) at {re.escape(address)}:\d+ for 30 s: timed out"
    assert re.search(why, finished.err, re.MULTILINE), finished.err
    assert "open this port between the nodes" in finished.err
    assert finished.last_line == "error: starting the nodes, so no training was started: failed on 1 host"
    assert three.gone()
    for host in three.hosts:
        runs = three.sandbox.sh(host, f"ls /root/.clusterkit/{host}/runs").stdout.split()
        assert not [run for run in runs if run in finished.err], "the run's directory is still there"
    status = three.status()
    assert (status["state"], status["exit_code"], status["cause"]) == ("failed", 1, "clusterkit")
    assert [node["state"] for node in status["nodes"]] == ["planned"] * 3
    shown = three.run("status")
    assert "node03: could not reach node 0 (node01)" in shown.out, shown.out + shown.err


def test_another_world_than_planned_never_runs(three: Cluster) -> None:
    """Each launcher believes to be alone, as with a PADDLE_NNODES that an image brings."""
    template = three.folder / "alone.sh.j2"
    text = (templating.folder() / "paddle-launch.sh.j2").read_text()
    assert "\nexec " in text
    template.write_text(text.replace("\nexec ", "\nexport PADDLE_NNODES=1\nexec "))
    finished = three.launch("--template", "alone.sh.j2", "drill.py", "1")
    assert finished.code == 1, finished.err
    assert "world size or rank other than planned" in finished.last_line
    assert "a world of 2 ranks, planned are 6" in finished.last_line
    assert "done after" not in finished.out, "a script ran"
    assert (three.status()["state"], three.status()["cause"]) == ("failed", "clusterkit")
    assert three.gone()
