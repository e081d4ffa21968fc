"""A run's life beyond its launch: read and stopped from elsewhere, listed, and removed."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.e2e.cluster import Cluster, Running
from tests.e2e.conftest import used_once
from tests.e2e.records import newest_run
from tests.e2e.terminal import on_terminal
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]


@pytest.fixture
def pair(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """Two hosts with one rank each."""
    yield from used_once(
        make_sandbox(SandboxSpec.of(2, name="e2e-life", python=(sys.executable,), nproc=1)), tmp_path
    )


@pytest.fixture
def with_gpus(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """Two hosts whose nvidia-smi lists two GPUs each."""
    spec = SandboxSpec.of(2, name="e2e-locks", python=(sys.executable,), gpus=2)
    yield from used_once(make_sandbox(spec), tmp_path)


@pytest.fixture
def elsewhere(pair: Cluster, tmp_path: Path) -> Cluster:
    """A second machine: another home, no record of any run, the same inventory."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "empty").mkdir()
    return Cluster(pair.sandbox, tmp_path / "elsewhere" / "empty")


def until_running(cluster: Cluster) -> str:
    """The newest run, once all its ranks run."""
    end = time.monotonic() + 60
    while (status := cluster.status())["state"] != "running":
        assert time.monotonic() < end, status
    return newest_run(cluster)


# Answers as the real one does, for what `status` asks.
_SMI = """#!/bin/sh
case "$*" in *index,utilization.gpu,memory.used,memory.total*) echo "0, 97, 70000, 81559" ;; *) exit 9 ;; esac
"""


def test_status_says_how_far_each_rank_has_come_and_is_watched(pair: Cluster) -> None:
    assert pair.launch("--detach", "drill.py", "300", "--steps", "9000").code == 0
    run_id = until_running(pair)
    first, second = pair.hosts
    smi = "/usr/local/bin/nvidia-smi"
    pair.sandbox.sh(first, ["sh", "-c", f"printf %s '{_SMI}' > {smi}; chmod 755 {smi}"])
    try:
        end = time.monotonic() + 60
        status = pair.status()
        while any(rank["step"] is None for rank in status["ranks"]):
            assert time.monotonic() < end, status
            status = pair.status()
        shown = pair.run("status")
    finally:
        pair.sandbox.sh(first, ["rm", smi])
    validate("status", status)
    gpu = {"index": 0, "used_percent": 97, "memory_used_mib": 70000, "memory_mib": 81559}
    assert [node["gpus"] for node in status["nodes"]] == [[gpu], None]
    for rank in status["ranks"]:
        assert (rank["joined"], rank["epoch"], rank["steps"], rank["exit_code"]) == (True, 1, 9000, None)
        assert rank["bytes"] > 0
        assert rank["line_age_s"] >= 0
    assert f"{first}: GPU 0 97 %, 70000 of 81559 MiB" in shown.out
    assert re.search(rf"^1     {second}  yes     epoch 1 step \d+/9000  .* s ago$", shown.out, re.MULTILINE)

    watched = pair.start("status", "--watch")
    one = watched.until(rf"rank 1 {second} epoch 1 step \d+/9000\n")
    left = pair.start("status", "--watch", "--json")
    left.until(rf'"run_id": "{run_id}"')
    left.send(signal.SIGINT)
    assert left.wait().code == 130
    assert "no longer watching; the run goes on by itself" in left.err
    validate("status", json.loads(left.out.splitlines()[0]))

    with ThreadPoolExecutor() as pool:
        screen = pool.submit(on_terminal, pair, "status", "--watch")
        # Every picture is recorded here, by both that watch.
        path = pair.state / "clusterkit" / "runs" / run_id / "run.json"
        pictures = {path.stat().st_mtime_ns}
        end = time.monotonic() + 60
        while len(pictures) < 8 and not screen.done():
            assert time.monotonic() < end
            time.sleep(0.1)
            pictures.add(path.stat().st_mtime_ns)
        assert pair.run("stop", "--grace", "5").code == 0
        drawn = screen.result(60)
    assert drawn.code == 0
    assert drawn.text.count("\x1b[H") >= 2
    assert f"run {run_id}  running" in drawn.text
    assert f"run {run_id}  stopped (exit 143)" in drawn.text.split("\x1b[H")[-1]

    finished = watched.wait()
    assert finished.code == 0, finished.err
    assert "\x1b" not in finished.out
    steps = re.findall(rf"rank 1 {second} epoch 1 step \d+/9000", finished.out)
    assert one.strip() == steps[0]
    assert len(set(steps)) == len(steps) > 1, "only what is new"
    assert f" run {run_id} stopped\n" in finished.out
    assert pair.run("logs", "--rank", "1").code == 0
    last = pair.run("status").out
    assert re.search(rf"^1     {second}  yes     epoch 1 step \d+/9000 .* signal 15$", last, re.MULTILINE)


def test_a_command_is_told_of_each_end(pair: Cluster, tmp_path: Path) -> None:
    told = tmp_path / "told.json"

    def ended(*job: str) -> Running:
        return pair.start("launch", "--on-end", f"cat > {told}; echo noted; exit 9", "INVENTORY", *job)

    def document() -> dict[str, Any]:
        status: dict[str, Any] = json.loads(told.read_text())
        validate("status", status)
        assert status == pair.status()
        told.unlink()
        return status

    success = ended("drill.py", "0.5", "--steps", "7").wait()
    assert success.code == 0, success.err
    assert success.err.endswith("noted\nthe command of --on-end exited with 9\n")
    assert "noted" not in success.out
    status = document()
    assert (status["state"], status["exit_code"], status["ranks"][0]["steps"]) == ("succeeded", 0, 7)

    failure = ended("drill.py", "300", "--fail", "1:7:0.5").wait()
    assert (failure.code, document()["root"]["rank"]) == (7, 1)

    interrupted = ended("drill.py", "300")
    interrupted.until("rank 1 line 3")
    interrupted.send(signal.SIGINT)
    assert interrupted.wait().code == 130
    assert document()["state"] == "stopped"

    # Not started at all: the code cannot be written there.
    for host in pair.hosts:
        pair.sandbox.sh(
            host, ["sh", "-c", "rm -rf /root/.clusterkit/*/code; touch /root/.clusterkit/$0/code", host]
        )
    try:
        unstaged = ended("drill.py", "300").wait()
    finally:
        for host in pair.hosts:
            pair.sandbox.sh(host, ["rm", "-f", f"/root/.clusterkit/{host}/code"])
    assert unstaged.code == 1, unstaged.err
    status = document()
    assert (status["state"], status["cause"], status["exit_code"]) == ("failed", "clusterkit", 1)


def test_a_run_is_read_and_stopped_from_a_second_machine(pair: Cluster, elsewhere: Cluster) -> None:
    launched = pair.launch("--detach", "drill.py", "300")
    assert launched.code == 0, launched.err
    run_id = until_running(pair)
    for host in pair.hosts:
        kept = json.loads(pair.sandbox.read(host, f"/root/.clusterkit/{host}/runs/{run_id}/run.json"))
        assert not any(node["reach"] for node in kept["plan"]["nodes"])

    assert elsewhere.run("status").code == 2, "nothing is recorded there, and no host is asked unasked"
    listed = elsewhere.run("runs", "-i", "INVENTORY", "--json")
    assert listed.code == 0, listed.err
    document = json.loads(listed.out)
    validate("runs", document)
    (entry,) = [run for run in document["runs"] if run["run_id"] == run_id]
    assert (entry["state"], entry["script"], entry["args"]) == ("running", "drill.py", ["300"])
    assert elsewhere.run("runs").out == "", "a list records nothing"

    shown = elsewhere.run("status", "-i", "INVENTORY", "--json", "--run", run_id[-4:])
    assert shown.code == 0, shown.err
    status = json.loads(shown.out)
    validate("status", status)
    assert status["state"] == "running"
    assert [(node["host"], node["state"]) for node in status["nodes"]] == [
        (host, "running") for host in pair.hosts
    ]
    log = elsewhere.run("logs", "-i", "INVENTORY", "--rank", "1", "--tail", "all")
    assert log.code == 0, log.err
    assert log.out.startswith("rank 1 of 2\n")

    stopped = elsewhere.run("stop", run_id, "-i", "INVENTORY")
    assert stopped.code == 0, stopped.err
    assert pair.gone()
    assert pair.status()["state"] == "stopped"
    assert elsewhere.status()["state"] == "stopped", "it is recorded there by now"


def test_a_node_that_the_second_machine_does_not_know_is_named(
    pair: Cluster, elsewhere: Cluster, tmp_path: Path
) -> None:
    assert pair.launch("drill.py", "1").code == 0
    lines = pair.sandbox.inventory.read_text().splitlines(keepends=True)
    partial = tmp_path / "partial.ini"
    partial.write_text("".join(line for line in lines if not line.startswith(pair.hosts[1])))
    shown = elsewhere.run("status", "-i", str(partial), "--json")
    assert shown.code == 0, shown.err
    first, second = json.loads(shown.out)["nodes"]
    assert (first["state"], first["error"]) == ("ended", "")
    assert "is a node of the run, but" in second["error"]
    assert "partial.ini does not name it" in second["error"]
    unknown = elsewhere.run("status", "-i", str(partial), "--run", "none-such")
    assert unknown.code == 2
    assert f"there is no run `none-such` on the 1 host of {partial}" in unknown.err


def test_prune_removes_what_ended_everywhere_and_nothing_else(pair: Cluster) -> None:
    def kept(host: str) -> list[str]:
        return pair.sandbox.sh(host, ["ls", f"/root/.clusterkit/{host}/runs"]).stdout.split()

    # What other tests of these hosts left is none of this test's.
    before = set(kept(pair.hosts[0])) | set(kept(pair.hosts[1]))
    assert pair.launch("drill.py", "1").code == 0
    old = newest_run(pair)
    assert pair.launch("--detach", "drill.py", "300").code == 0
    alive = until_running(pair)

    asked = pair.run("runs", "prune", "--keep", "0")
    assert asked.code == 3
    assert f"kept: run {alive} is running" in asked.err
    assert f"  {old}  succeeded  " in asked.err
    assert "no terminal to ask on" in asked.err
    assert set(kept(pair.hosts[0])) - before == {old, alive}

    # A host that is gone for now keeps the record here, so that the run can go from it later.
    pair.sandbox.cut(pair.hosts[1])
    half = pair.run("runs", "prune", "--keep", "1", "--yes")
    assert half.code == 4
    assert f"{old}: kept here, since it is not gone everywhere: {pair.hosts[1]}" in half.err
    assert old in pair.run("runs").out
    pair.sandbox.mend(pair.hosts[1])

    done = pair.run("runs", "prune", "--keep", "1", "--yes", "--json")
    assert done.code == 0, done.err
    validate("prune", json.loads(done.out))
    assert json.loads(done.out)["removed"] == [old]
    for host in pair.hosts:
        assert set(kept(host)) - before == {alive}
    assert not (pair.state / "clusterkit" / "runs" / old).exists()
    assert pair.run("stop", alive).code == 0

    # A record that says wrongly that its run is over: the host knows better.
    assert pair.launch("--detach", "drill.py", "300").code == 0
    fresh = until_running(pair)
    path = pair.state / "clusterkit" / "runs" / fresh / "run.json"
    path.write_text(path.read_text().replace('"state": "running"', '"state": "succeeded"', 1))
    refused = pair.run("runs", "prune", "--keep", "0", "--yes")
    assert refused.code == 1
    assert f"run {fresh} has processes there (clusterkit stop {fresh} ends them)" in refused.err
    assert all(fresh in kept(host) for host in pair.hosts)


def on_cpus(cluster: Cluster) -> tuple[str, ...]:
    """Options of launch: the Paddle that is here has CPUs alone, as its launcher is told behind our back."""
    ours = (Path(__file__).parents[2] / "templates" / "paddle-launch.sh.j2").read_text()
    changed = (
        "join(' ') | replace('--devices 0', '--nproc_per_node 1')"
        " | replace('--devices 1', '--nproc_per_node 1')"
    )
    template = cluster.folder.parent / "on-cpus.j2"
    template.write_text(ours.replace("join(' ')", changed))
    return ("--no-preflight", "--template", str(template))


def test_two_runs_side_by_side_and_a_third_that_waits(with_gpus: Cluster) -> None:
    unchecked = on_cpus(with_gpus)
    first = with_gpus.start("launch", *unchecked, "--devices", "0", "INVENTORY", "drill.py", "300")
    second = with_gpus.start("launch", *unchecked, "--devices", "1", "INVENTORY", "drill.py", "300")
    for each in (first, second):
        each.until("rank 1 line 0", 90)
    windows = {}
    for host in with_gpus.hosts:
        held = [
            json.loads(line)
            for line in with_gpus.sandbox.sh(host, ["sh", "-c", "cat /var/tmp/clusterkit-locks/*/*.json"])
            .stdout.strip()
            .splitlines()
        ]
        assert sorted(tuple(hold["devices"]) for hold in held) == [(0,), (1,)]
        windows[host] = sorted(tuple(hold["ports"]) for hold in held)
        assert windows[host][0][1] < windows[host][1][0], "their ports are apart"

    refused = with_gpus.launch(*unchecked, "--devices", "0", "drill.py", "1")
    assert refused.code == 1, refused.err
    assert re.search(r"node\S+: GPU 0 is held by run \S+ of \S+@\S+ for \d+ s", refused.err)
    third = with_gpus.start(
        *("launch", *unchecked, "--lock-wait", "90", "--devices", "0", "INVENTORY", "drill.py", "1")
    )
    third.until("waiting up to 90 s for hosts that are held: node.*: GPU 0 is held by run ", 60)
    for each in (first, second):
        run_id = each.until(r"run \S+: 2 ranks").split()[1].rstrip(":")
        assert with_gpus.run("stop", run_id, "--grace", "5").code == 0
        assert each.wait().code == 143
    ended = third.wait(180)
    assert ended.code == 0, ended.err
    for host in with_gpus.hosts:
        left = with_gpus.sandbox.sh(host, ["sh", "-c", "ls /var/tmp/clusterkit-locks/*/*.json || true"])
        assert left.stdout.strip() == ""


def test_what_a_dead_supervisor_held_is_in_nobodys_way(with_gpus: Cluster) -> None:
    def held(host: str) -> str:
        words = ["sh", "-c", "ls /var/tmp/clusterkit-locks/*/*.json || true"]
        return with_gpus.sandbox.sh(host, words).stdout

    options = (*on_cpus(with_gpus), "--devices", "0")
    launched = with_gpus.launch("--detach", *options, "drill.py", "300")
    assert launched.code == 0, launched.err
    run_id = until_running(with_gpus)
    refused = with_gpus.launch(*options, "drill.py", "1")
    assert refused.code == 1, refused.err
    owner = rf"{re.escape(getpass.getuser())}@{re.escape(socket.gethostname())}"
    assert re.search(rf"GPU 0 is held by run {run_id} of {owner} for \d+ s", refused.err)
    assert "stop that run" in refused.err

    # One dies alone, the other with its host.
    first, second = with_gpus.hosts
    (supervisor,) = [each for each in with_gpus.sandbox.processes(first) if "supervise" in each.argv]
    os.kill(supervisor.pid, signal.SIGKILL)
    with_gpus.sandbox.kill(second)
    with_gpus.sandbox.start(second)
    assert with_gpus.gone(30)
    for host in with_gpus.hosts:
        assert run_id in held(host), "nobody was left to remove it"

    again = with_gpus.launch(*options, "drill.py", "1")
    assert again.code == 0, again.err
    assert [held(host) for host in with_gpus.hosts] == ["", ""]
