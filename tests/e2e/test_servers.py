"""Parameter servers for real: the example trains on two servers and three trainers over three hosts.

The Paddle that can (2.6.2 on Python 3.10) is installed once into a cache folder; where that cannot be, the
test says so. The wheel of 3.3.1 cannot, and is refused before anything starts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import used_once
from tests.launchers.paddles import INSTALL_LIMIT_S, python_with_paddle
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(INSTALL_LIMIT_S + 300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "sparse.py"


@pytest.fixture
def served(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """Three hosts with Paddle 2.6.2, and the example in the project."""
    spec = SandboxSpec.of(3, name="e2e-servers", python=(python_with_paddle("2.6.2"),))
    for cluster in used_once(make_sandbox(spec), tmp_path):
        shutil.copyfile(EXAMPLE, cluster.folder / "sparse.py")
        yield cluster


def last_losses(text: str) -> dict[int, tuple[float, float]]:
    """Trainer → its first and its last loss."""
    found: dict[int, list[float]] = {}
    for trainer, loss in re.findall(r"^trainer (\d)/3 step \d+ loss (\S+)$", text, re.MULTILINE):
        found.setdefault(int(trainer), []).append(float(loss))
    return {trainer: (losses[0], losses[-1]) for trainer, losses in found.items()}


def test_two_servers_and_three_trainers_on_three_hosts(served: Cluster) -> None:
    words = (
        "--run-mode",
        "ps",
        "--servers",
        "2",
        "--trainers",
        "3",
        "INVENTORY",
        "sparse.py",
        "--steps",
        "200",
    )
    finished = served.run("launch", "--quiet", *words, limit=200)
    assert finished.code == 0, finished.err
    status = served.status()
    validate("status", status)
    assert status["state"] == "succeeded"
    assert [(each["rank"], each["host"], each["exit_code"]) for each in status["ranks"]] == [
        *((0, "node01", 0), (1, "node02", 0)),
        (2, "node03", 0),
    ]
    assert [(each["server"], each["host"]) for each in status["servers"]] == [(0, "node01"), (1, "node02")]
    shown = served.run("status").out
    for number, host in ((0, "node01"), (1, "node02")):
        assert re.search(rf"^server {number} +{host} +yes ", shown, re.M), shown
    text = "".join(served.run("logs", "--rank", str(rank)).out for rank in range(3))
    losses = last_losses(text)
    assert sorted(losses) == [0, 1, 2]
    assert all(last < 0.7 * first for first, last in losses.values()), losses
    for number in (0, 1):
        log = served.run("logs", "--server", str(number))
        assert f"server {number}/2 serves\n" in log.out
    assert "trainer 2/3 done" in served.run("logs", "--rank", "2").out
    assert served.gone()


def kill_the_second_server(served: Cluster) -> None:
    victims = [
        process.pid
        for process in served.sandbox.processes("node02")
        if process.environment.get("TRAINING_ROLE") == "PSERVER" and "sparse.py" in process.argv[2:3]
    ]
    assert len(victims) == 1
    os.kill(victims[0], signal.SIGKILL)


def test_a_server_that_is_killed_is_named_and_the_job_starts_again_on_the_same_ports(served: Cluster) -> None:
    words = ("--run-mode", "ps", "--servers", "2", "--trainers", "3", "INVENTORY", "sparse.py")
    running = served.start("launch", "--max-restarts", "1", *words, "--steps", "100000")
    step = r"trainer 2/3 step 20 "
    running.until(step, 150)
    kill_the_second_server(served)
    running.until(r"attempt 1 begins in 5 s, since server 1 on node02 was killed by signal 9", 60)
    running.until(rf"(?s){step}.*{step}", 150)
    kill_the_second_server(served)
    finished = running.wait(120)
    assert finished.code == 137, finished.err
    assert "server 1 on node02 was killed by signal 9" in finished.last_line
    assert served.gone()


def test_a_paddle_without_servers_is_refused_before_the_start(three: Cluster) -> None:
    words = ("--run-mode", "ps", "--servers", "1", "--trainers", "2", "INVENTORY", "drill.py", "1")
    finished = three.run("launch", *words)
    assert finished.code == 1
    assert "PaddlePaddle 3.3.1 was built without its parameter servers" in finished.err
    assert "so nothing was started" in finished.err
    assert three.marked() == []


def test_groups_say_who_serves(served: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "roles.ini"
    groups = "\n[servers]\nnode02\n[trainers]\nnode01\nnode03\n"
    inventory.write_text(served.sandbox.inventory.read_text() + groups)
    finished = served.run("launch", "--dry-run", "--json", "--run-mode", "ps", str(inventory), "sparse.py")
    assert finished.code == 0, finished.err
    planned = {node["host"]: node for node in json.loads(finished.out)["nodes"]}
    assert {host: (node["ranks"], node["servers"]) for host, node in planned.items()} == {
        "node01": ([0, 1], []),
        "node02": ([], [0]),
        "node03": ([2, 3], []),
    }
    for node in planned.values():
        command = node["command"]
        assert command[command.index("--servers") + 1].startswith(planned["node02"]["node_ip"] + ":")
