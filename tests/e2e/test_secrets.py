"""A secret of --env-file on runs that fail: only the ranks have it, and one private file on each host."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.e2e.canary import canary, in_arguments, in_environments, in_files, on_host
from tests.e2e.cluster import Cluster, Finished
from tests.e2e.conftest import used_once
from tests.e2e.records import newest_run

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]


@pytest.fixture
def pair(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """Two hosts with two ranks each."""
    yield from used_once(
        make_sandbox(SandboxSpec.of(2, name="e2e-secrets", python=(sys.executable,))), tmp_path
    )


@pytest.fixture
def word(pair: Cluster) -> str:
    """The secret that stands in secrets.env."""
    word = canary()
    (pair.folder / "secrets.env").write_text(f'export API_KEY="{word}"\n')
    return word


def mode(cluster: Cluster, host: str, path: str) -> int:
    return stat.S_IMODE(
        (Path(f"/proc/{cluster.sandbox.init(host).pid}/root") / path.lstrip("/")).stat().st_mode
    )


def said(*finished: Finished) -> str:
    return "".join(each.out + each.err for each in finished)


def kept_to_itself(cluster: Cluster, word: str, tmp_path: Path) -> None:
    """No process has it any more, no file of a host, and here only the file that the user wrote."""
    assert in_environments(word) == in_arguments(word) == []
    assert [on_host(word, cluster, host) for host in cluster.hosts] == [[], []]
    assert in_files(word, tmp_path) == [cluster.folder / "secrets.env"]


def test_a_run_whose_rank_dies(pair: Cluster, word: str, tmp_path: Path) -> None:
    told = ("--on-end", f"cat > {tmp_path}/told.json")
    running = pair.start("launch", "-v", "--env-file", "secrets.env", *told, "INVENTORY", "drill.py", "300")
    for rank in range(4):
        running.until(f"rank {rank} line 0", 90)
    run_id = newest_run(pair)

    having = in_environments(word)
    assert len(having) == 4
    assert not [argv for argv in having if not argv.endswith("-u drill.py 300") or "agent.pyz" in argv]
    assert in_arguments(word) == []
    for host in pair.hosts:
        run_dir = f"/root/.clusterkit/{host}/runs/{run_id}"
        assert on_host(word, pair, host) == [f"{run_dir}/secrets.json"]
        assert mode(pair, host, f"{run_dir}/secrets.json") == 0o600
        assert mode(pair, host, run_dir) == mode(pair, host, f"{run_dir}/logs") == 0o700
        # Paddle writes the job's environment there, which is what its launcher was given.
        logs = pair.sandbox.sh(host, ["ls", f"{run_dir}/logs"]).stdout.split()
        assert {name.split(".")[0] for name in logs} >= {"envlog", "backup_env", run_id, "workerlog"}
        assert {name: mode(pair, host, f"{run_dir}/logs/{name}") for name in logs} == dict.fromkeys(
            logs, 0o600
        )
    assert in_files(word, tmp_path) == [pair.folder / "secrets.env"]

    for process in pair.sandbox.processes(pair.hosts[1]):
        if process.environment.get("PADDLE_TRAINER_ID") == "3" and "agent.pyz" not in " ".join(process.argv):
            os.kill(process.pid, signal.SIGKILL)
    failed = running.wait()
    assert failed.code == 137, failed.err
    assert json.loads((tmp_path / "told.json").read_text())["root"]["rank"] == 3
    assert pair.gone()
    shown = [
        pair.run("status", "--json"),
        pair.run("logs", "--output", str(tmp_path / "logs")),
        pair.run("runs", "--json"),
    ]
    assert [each.code for each in shown] == [0, 0, 0]
    gathered = sorted(path.name for path in (pair.state / "clusterkit" / "runs" / run_id).rglob("*.log"))
    assert gathered == [
        *(f"launcher-{host}.log" for host in pair.hosts),
        *(f"rank-{rank:04d}.log" for rank in range(4)),
    ], "and none of Paddle's own files"
    assert word not in said(failed, *shown)
    kept_to_itself(pair, word, tmp_path)


def test_a_run_that_cannot_be_staged(pair: Cluster, word: str, tmp_path: Path) -> None:
    # Where the code belongs lies a file.
    _, second = pair.hosts
    code = f"/root/.clusterkit/{second}/code"
    pair.sandbox.sh(second, ["sh", "-c", f"rm -rf {code}; mkdir -p {Path(code).parent}; touch {code}"])
    try:
        failed = pair.launch("-v", "--env-file", "secrets.env", "drill.py", "300")
    finally:
        pair.sandbox.sh(second, ["rm", "-f", code])
    assert failed.code == 1
    assert "Traceback" in failed.err, "-v shows it"
    assert "nothing was started" in failed.err
    status = pair.run("status", "--json")
    assert word not in said(failed, status)
    kept_to_itself(pair, word, tmp_path)


def test_a_supervisor_that_dies_leaves_the_secret_in_its_file_until_the_run_is_stopped(
    pair: Cluster, word: str, tmp_path: Path
) -> None:
    launched = pair.launch("--detach", "--env-file", "secrets.env", "drill.py", "300")
    assert launched.code == 0, launched.err
    run_id = newest_run(pair)
    for host in pair.hosts:
        for process in pair.sandbox.processes(host):
            if "supervise" in process.argv:
                os.kill(process.pid, signal.SIGKILL)
    # A script dies with its rank entry, that with its launcher, and that with its supervisor.
    end = time.monotonic() + 60
    while in_environments(word):
        assert time.monotonic() < end
        time.sleep(0.2)
    for host in pair.hosts:
        (kept,) = on_host(word, pair, host)
        assert kept == f"/root/.clusterkit/{host}/runs/{run_id}/secrets.json"
        assert mode(pair, host, kept) == 0o600
    stopped = pair.run("stop")
    assert word not in said(launched, pair.run("status", "--json"), stopped)
    kept_to_itself(pair, word, tmp_path)
