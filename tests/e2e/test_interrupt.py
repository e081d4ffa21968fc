"""Signals in every phase, and a controller that is gone: nothing is left behind, nothing is lost."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.e2e.cluster import Cluster, Running

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]


def staged(cluster: Cluster) -> list[str]:
    """The run directories on the hosts."""
    found = []
    for host in cluster.hosts:
        listed = cluster.sandbox.sh(
            host, "ls -d /root/.clusterkit/*/runs/* 2>/dev/null || true"
        ).stdout.split()
        found += [f"{host}:{path}" for path in listed]
    return found


def running(cluster: Cluster, *options: str, script: tuple[str, ...] = ("drill.py", "60")) -> Running:
    """A launch whose ranks all run."""
    launched = cluster.start("launch", *options, "INVENTORY", *script)
    launched.until("all 4 nodes joined", 90)
    return launched


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_hosts_are_read(cluster: Cluster, signum: int) -> None:
    # A paused sshd accepts the connection and says nothing: this phase waits for it.
    before = staged(cluster)
    cluster.sandbox.sshd(cluster.hosts[3], "pause")
    try:
        launched = cluster.start("launch", "INVENTORY", "drill.py", "60")
        launched.until("reading the hosts", 30)
        launched.send(signum)
        finished = launched.wait(30)
    finally:
        cluster.sandbox.sshd(cluster.hosts[3], "resume")
    assert finished.code == 128 + signum
    assert cluster.hosts[3] in finished.err
    assert "not finished" in finished.err
    assert staged(cluster) == before
    assert cluster.gone()


def test_ctrl_c_while_staging_leaves_nothing(cluster: Cluster) -> None:
    before = staged(cluster)
    (cluster.folder / "data.bin").write_bytes(os.urandom(40_000_000))
    # What a host takes is limited, so that staging lasts for about 20 s.
    limit = "nft add table inet drill && "
    limit += "nft 'add chain inet drill in { type filter hook input priority 0; }' && "
    limit += "nft add rule inet drill in meta l4proto tcp limit rate over 2 mbytes/second drop"
    cluster.sandbox.sh(cluster.hosts[1], limit)
    try:
        launched = cluster.start("launch", "INVENTORY", "drill.py", "60")
        launched.until("staging: waiting", 60)
        launched.send(signal.SIGINT)
        finished = launched.wait(60)
    finally:
        cluster.sandbox.sh(cluster.hosts[1], "nft delete table inet drill")
    assert finished.code == 130
    assert "not finished" in finished.err
    assert staged(cluster) == before
    assert cluster.gone()
    assert cluster.status()["state"] == "stopped"


def test_ctrl_c_at_the_gate_leaves_nothing(cluster: Cluster) -> None:
    # Node 2 cannot reach node 0's channel, so the gate stays shut and waits.
    before = staged(cluster)
    block = "nft add table inet drill && "
    block += "nft 'add chain inet drill out { type filter hook output priority 0; }' &&"
    address = cluster.sandbox.addresses(cluster.hosts[0])[0]
    cluster.sandbox.sh(cluster.hosts[1], f"{block} nft add rule inet drill out ip daddr {address} drop")
    try:
        launched = cluster.start("launch", "INVENTORY", "drill.py", "60")
        launched.until(f"starting: waiting for {cluster.hosts[1]}", 60)
        launched.send(signal.SIGINT)
        finished = launched.wait(40)
    finally:
        cluster.sandbox.sh(cluster.hosts[1], "nft delete table inet drill")
    assert finished.code == 130
    assert staged(cluster) == before
    assert cluster.gone()


def test_ctrl_c_while_running_stops_all_nodes(cluster: Cluster) -> None:
    launched = running(cluster, script=("drill.py", "60", "--orphan"))
    launched.send(signal.SIGINT)
    launched.until("stopping all nodes", 10)
    finished = launched.wait(60)
    assert finished.code == 130
    assert "interrupted by the user" in finished.last_line
    assert cluster.gone()
    status = cluster.status()
    assert (status["state"], status["exit_code"], status["cause"]) == ("stopped", 130, "user")


def test_a_second_ctrl_c_skips_the_grace_and_names_the_hosts(cluster: Cluster) -> None:
    launched = running(cluster, script=("drill.py", "60", "--ignore-term"))
    launched.send(signal.SIGINT)
    launched.until("stopping all nodes", 10)
    begun = time.monotonic()
    launched.send(signal.SIGINT)
    launched.until("stopping now; not finished: node", 10)
    finished = launched.wait(60)
    assert finished.code == 130
    # Far less than the grace of 40 s that the ranks would have used up.
    assert time.monotonic() - begun < 25
    assert cluster.gone()


def test_sigterm_stops_with_143(cluster: Cluster) -> None:
    launched = running(cluster)
    launched.send(signal.SIGTERM)
    finished = launched.wait(60)
    assert finished.code == 143
    assert cluster.gone()


def test_ctrl_c_while_gathering(cluster: Cluster) -> None:
    # 30 MB from each of 8 ranks at the end: there is something to gather when the job is over.
    (cluster.folder / "big.py").write_text(
        "import sys\nfor _ in range(300):\n    sys.stdout.write('x' * 99_999 + '\\n')\nprint('written')\n"
    )
    launched = cluster.start("launch", "--quiet", "INVENTORY", "big.py")
    end = time.monotonic() + 60
    while not any((cluster.state / "clusterkit/runs").glob("*/logs/rank-*.log")) and time.monotonic() < end:
        time.sleep(0.05)
    launched.send(signal.SIGINT)
    finished = launched.wait(60)
    assert finished.code in (0, 130)
    assert cluster.gone()
    # What was not gathered is still on the hosts, and is fetched when it is asked for.
    if cluster.status()["state"] == "succeeded":
        log = cluster.run("logs", "--rank", "7")
        assert log.code == 0, log.err
        assert len(log.out) == 30_000_008
        assert log.out.endswith("written\n")


def test_hangup_detaches(cluster: Cluster) -> None:
    launched = running(cluster, script=("drill.py", "30"))
    launched.send(signal.SIGHUP)
    finished = launched.wait(20)
    assert "detached" in finished.err
    assert cluster.status()["state"] == "running"
    assert cluster.run("stop", "--grace", "5").code == 0
    assert cluster.gone()


def test_a_killed_controller_does_not_end_the_job(cluster: Cluster) -> None:
    launched = running(cluster, script=("drill.py", "120", "--orphan"))
    launched.send(signal.SIGKILL)
    launched.process.wait(10)
    follower = cluster.start("logs", "--follow")
    line = follower.until(r"rank 7 line \d+", 30)
    follower.until(rf"rank 7 line {int(line.split()[-1]) + 20}\n", 30)
    assert cluster.status()["state"] == "running"
    stopped = cluster.run("stop")
    assert stopped.code == 0, stopped.err
    assert "nothing of it is left" in stopped.out
    # /proc of every host: no process with the run's marker, also not the child that emptied its environment.
    assert cluster.marked() == []
    assert follower.wait(30).code == 0
    status = cluster.status()
    assert (status["state"], status["exit_code"]) == ("stopped", 143)


def test_stop_again_says_that_it_had_ended(cluster: Cluster) -> None:
    assert cluster.launch("drill.py", "0.2").code == 0
    again = cluster.run("stop")
    assert again.code == 0, again.err
    assert "had ended already" in again.out
    assert cluster.status()["state"] == "succeeded"


def test_one_host_that_cannot_be_staged_starts_nothing(cluster: Cluster) -> None:
    host = cluster.hosts[2]
    cluster.sandbox.sh(host, "rm -rf /root/.clusterkit && echo in the way > /root/.clusterkit")
    before = staged(cluster)
    try:
        finished = cluster.launch("--no-preflight", "drill.py", "60")
    finally:
        cluster.sandbox.sh(host, "rm -f /root/.clusterkit")
    assert finished.code == 1
    assert host in finished.err
    assert "nothing was started" in finished.err
    assert staged(cluster) == before
    assert cluster.gone()
