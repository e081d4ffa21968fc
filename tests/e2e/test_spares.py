"""A spare takes the place of a host that is gone; the job resumes from the checkpoint on a shared folder."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import Bind, SandboxSpec
from tests.e2e.cluster import Cluster, Running
from tests.e2e.conftest import used_once
from tests.e2e.test_restarts import EXAMPLE, kill_one, steps
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(500)]

XID = "NVRM: Xid (PCI:0000:13:00): 79, pid=0, GPU has fallen off the bus."


@pytest.fixture
def spared(
    make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Iterator[Cluster]:
    """Two hosts and two spares, with a folder that all of them see."""
    shared = tmp_path_factory.getbasetemp() / "shared"
    shared.mkdir(exist_ok=True)
    binds = (Bind(str(shared), "/shared"),)
    spec = SandboxSpec.of(4, name="e2e-spares", python=(sys.executable,), binds=binds)
    yield from used_once(make_sandbox(spec), tmp_path)


def launch(cluster: Cluster, *options: str, job: str) -> Running:
    """Start a job on the hosts that are no spares."""
    inventory = cluster.folder.parent / "spares.ini"
    inventory.write_text(f"{cluster.sandbox.inventory.read_text()}\n[spares]\nnode03\nnode04\n")
    words = ["--json", "--node-timeout", "5", *options, str(inventory), *job.split()]
    return cluster.start("launch", *words)


def test_node_0_loses_its_power_and_the_second_spare_takes_its_place(spared: Cluster) -> None:
    """The first spare has no power either."""
    shutil.copy(EXAMPLE, spared.folder)
    spared.sandbox.kill("node03")
    job = "train.py --steps 60 --save-every 20 --log-every 1 --step-time 0.1"
    running = launch(spared, "--max-restarts", "1", "--checkpoint-dir", "/shared/checkpoints", job=job)
    running.until(r"rank 0/4 step 31 ", limit=120)
    spared.sandbox.kill("node01")
    finished = running.wait(300)
    assert finished.code == 0, finished.err + finished.out
    for line in finished.out.splitlines():
        validate("launch", json.loads(line))
    (again,) = finished.events("restarted")
    assert (again["attempt"], again["host"], again["replaced"]) == (1, "node01", {"node01": "node04"})
    notices = [event["text"] for event in finished.events("notice")]
    assert any(text.startswith("spare node03") and text.endswith("left out") for text in notices), notices
    status = spared.status()
    assert (status["state"], status["exit_code"], status["attempt"]) == ("succeeded", 0, 1)
    assert [each["state"] for each in status["attempts"]] == ["lost", "succeeded"]
    assert [rank["host"] for rank in status["ranks"]] == ["node04", "node04", "node02", "node02"]
    for rank in (0, 3):
        first, second = steps(spared, rank, 0), steps(spared, rank, 1)
        assert first[-1] >= 31
        assert second == list(range(first[-1] // 20 * 20 + 1, 61)), "it did not resume from the checkpoint"
    assert spared.gone()


def test_a_host_whose_gpu_fell_off_the_bus_is_replaced(spared: Cluster) -> None:
    running = launch(spared, "--max-restarts", "2", job="drill.py 20")
    running.until(r'"event": "joined".*"host": "node02"')
    for path, text in (("/usr/local/sbin/dmesg", f"echo '{XID}'"), ("/usr/local/sbin/nvidia-smi", "exit 0")):
        write = ["sh", "-c", f"cat >{path} && chmod +x {path}"]
        assert spared.sandbox.sh("node02", write, stdin=f"#!/bin/sh\n{text}\n").returncode == 0
    kill_one(spared, "node02", "drill.py", local_rank="1")
    finished = running.wait(200)
    assert finished.code == 0, finished.err + finished.out
    status = spared.status()
    assert [each["state"] for each in status["attempts"]] == ["failed", "lost", "succeeded"]
    assert "a GPU of node02 is not fit for a job any more: Xid 79" in status["attempts"][1]["reason"]
    assert finished.events("restarted")[-1]["replaced"] == {"node02": "node03"}
    assert spared.gone()


def test_a_spare_that_cannot_be_staged_is_left_out(spared: Cluster) -> None:
    """It has passed the checks; where its runs would lie somebody has put a file."""
    runs = "~/.clusterkit/node03"
    blocked = spared.sandbox.sh("node03", f"mkdir -p ~/.clusterkit && rm -rf {runs} && echo >{runs}")
    assert blocked.returncode == 0, blocked.stderr
    running = launch(spared, "--max-restarts", "1", job="drill.py 20")
    try:
        running.until(r'"event": "joined".*"host": "node02"')
        spared.sandbox.kill("node02")
        finished = running.wait(200)
    finally:
        spared.sandbox.sh("node03", f"rm {runs}")
    assert finished.code == 0, finished.err + finished.out
    assert [event["replaced"] for event in finished.events("restarted")] == [
        {"node02": "node03"},
        {"node02": "node04"},
    ]
    notices = [event["text"] for event in finished.events("notice")]
    assert any(text.startswith("spare node03") and text.endswith("left out") for text in notices), notices
    status = spared.status()
    assert [each["state"] for each in status["attempts"]] == ["lost", "succeeded"]
    assert {rank["host"] for rank in status["ranks"]} == {"node01", "node04"}
    assert spared.gone()


def test_a_detached_run_says_that_spares_need_a_controller(spared: Cluster) -> None:
    finished = launch(spared, "--detach", "--max-restarts", "1", job="drill.py 1").wait()
    assert finished.code == 0, finished.err
    assert any("spares need a controller" in event["text"] for event in finished.events("notice"))
    assert spared.gone(30)
