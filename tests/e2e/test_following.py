"""Following through what happens to connections: cut, dropped, killed; not a line is lost or doubled."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(300)]

# Ranks 0-2 are on node01, 3 is on node02, 4 and 5 are on node03.
WORLD = 6
KILLS = 20


def numbers(text: str, rank: int, prefix: str = "") -> list[int]:
    """The numbers of a rank's counted lines, in the order in which they stand there."""
    return [int(number) for number in re.findall(rf"^{prefix}rank {rank} line (\d+)$", text, re.MULTILINE)]


def drop_sessions(cluster: Cluster, host: str) -> None:
    """sshd is another one, and every connection that it had is gone."""
    cluster.sandbox.sshd(host, "restart")
    for process in cluster.sandbox.processes(host):
        title = " ".join(process.argv)
        if title.startswith("sshd:") and "[listener]" not in title:
            os.kill(process.pid, signal.SIGKILL)


def test_not_a_line_is_lost_or_doubled(unequal: Cluster, tmp_path: Path) -> None:
    """One follower sees a cable pulled and sshd restarted; other readers are killed at any moment."""
    started = unequal.run(
        *("launch", "--detach", "--node-timeout", "60", "INVENTORY", "drill.py", "75", "--rate", "50")
    )
    assert started.code == 0, started.err
    follower = unequal.start("logs", "--follow", "--tail", "all")
    for rank in range(WORLD):
        follower.until(rf"rank {rank} line 5\n", 90)
    chance = random.Random(7)
    cut_at = 0.0
    for turn in range(KILLS):
        reader = unequal.start("logs", "--rank", "all")
        time.sleep(chance.uniform(0.3, 2.0))
        reader.send(signal.SIGKILL)
        reader.process.wait(10)
        if turn == 4:
            unequal.sandbox.cut("node02")
            cut_at = time.monotonic()
        elif turn == 9:
            # Longer than a connection takes to be given up by nobody, shorter than the node's time-out.
            time.sleep(max(0.0, 10 - (time.monotonic() - cut_at)))
            unequal.sandbox.mend("node02")
        elif turn == 14:
            drop_sessions(unequal, "node03")
    followed = follower.wait(150)
    assert followed.code == 0, followed.err
    whole = unequal.run("logs", "--output", str(tmp_path / "logs"))
    assert whole.code == 0, whole.err
    for rank in range(WORLD):
        text = (tmp_path / "logs" / f"rank-{rank:04d}.log").read_text()
        found = numbers(text, rank)
        assert found == list(range(len(found)))
        assert f"rank {rank} done after {len(found)} lines\n" in text
        assert numbers(followed.out, rank, rf"\[{rank} \w+\] ") == found
    assert unequal.status()["state"] == "succeeded"
    assert unequal.gone()
