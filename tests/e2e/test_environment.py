"""Hosts whose login environment would break a job, and what the user's own variables become."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterkit.sandbox.processes import HostProcess
from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.e2e.canary import in_files, on_host
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import used_once

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]

# Nothing listens there: what asks this proxy for a way to another node gets none.
PROXY = "http://me:proxyword@127.0.0.1:9"
SECRET = "canary-7f3a9"
SPACED = "a  b 'c' \"d\" $HOME \\ `id`"


@pytest.fixture
def troubled(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """Two hosts on two networks, of which the first leads to us only, as their last user left them."""
    environment = {
        "HTTP_PROXY": PROXY,
        "https_proxy": PROXY,
        "PADDLE_NNODES": "1",
        "PADDLE_TRAINER_ID": "5",
        "POD_IP": "10.9.9.9",
        "NCCL_IB_HCA": "mlx5_7",
    }
    spec = SandboxSpec.of(
        2,
        name="e2e-environment",
        networks=2,
        loopback_name=True,
        environment=environment,
        nproc=1,
        variables={"env_GREETING": "from the inventory"},
    )
    yield from used_once(make_sandbox(spec), tmp_path)


def test_what_the_login_shells_hold_does_not_reach_the_job(troubled: Cluster) -> None:
    finished = troubled.launch("allreduce.py", limit=200)
    assert finished.code == 0, finished.err
    status = troubled.status()
    assert [node["node_ip"] for node in status["nodes"]] == [
        troubled.sandbox.addresses(host)[1] for host in troubled.hosts
    ]
    for rank in range(2):
        log = troubled.run("logs", "--rank", str(rank)).out
        assert f"rank {rank} of 2\n" in log
        assert "sum 3 expected 3\n" in log
    said = finished.err.splitlines()
    hosts = "of node[01-02] out of the job"
    assert f"kept PADDLE_NNODES {hosts}: overrides the launcher's --nnodes" in said
    assert f"kept PADDLE_TRAINER_ID {hosts}: replaces the launcher's --rank without a word" in said
    assert f"kept POD_IP {hosts}: overrides the launcher's --host" in said
    assert [line for line in said if line.startswith(f"kept HTTP_PROXY, https_proxy {hosts}: ")]
    assert [line for line in said if line.startswith("kept NCCL_IB_HCA") and "env_NCCL_IB_HCA=" in line]
    assert "set NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME to eth1 on node[01-02]" in said
    assert "node[01-02]: host name warning: its own name resolves to 127.0.1.1" in said
    assert "proxyword" not in finished.out + finished.err


def test_the_users_own_variables(troubled: Cluster) -> None:
    (troubled.folder / "secrets.env").write_text(f'export API_KEY="{SECRET}"\n# a comment\n')
    running = troubled.start(
        *("launch", "--keep-proxy", "--env-file", "secrets.env", "--env", f"SPACED={SPACED}", "INVENTORY"),
        *("drill.py", "300"),
    )
    for rank in range(2):
        running.until(f"rank {rank} line 0", 90)
    for host in troubled.hosts:
        processes = troubled.sandbox.processes(host)
        script = _one(processes, "drill.py", without="agent.pyz")
        launcher = _one(processes, "paddle.distributed.launch", without="sh node.sh")
        assert script.environment["API_KEY"] == SECRET
        assert script.environment["HTTP_PROXY"] == script.environment["https_proxy"] == PROXY
        assert "HTTP_PROXY" not in launcher.environment
        for process in (script, launcher):
            assert process.environment["SPACED"] == SPACED
            assert process.environment["GREETING"] == "from the inventory"
            assert process.environment["GLOO_SOCKET_IFNAME"] == "eth1"
            assert "NCCL_IB_HCA" not in process.environment
            exempt = process.environment["NO_PROXY"].split(",")
            assert {troubled.sandbox.addresses(name)[1] for name in troubled.hosts} <= set(exempt)
        others = [process for process in processes if process.pid != script.pid]
        assert not [process.argv for process in others if SECRET in "".join(process.environment.values())]
        assert not [process.argv for process in processes if SECRET in " ".join(process.argv)]
        assert not [process.argv for process in processes if "proxyword" in " ".join(process.argv)]
        (kept,) = on_host(SECRET, troubled, host)
        assert kept.endswith("/secrets.json")
        mode = Path(f"/proc/{troubled.sandbox.init(host).pid}/root{kept}").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    stopped = troubled.run("stop")
    assert stopped.code == 0, stopped.err
    finished = running.wait()
    for word in (SECRET, "proxyword"):
        assert word not in finished.out + finished.err
        assert in_files(word, troubled.state) == []
        # The login environment of these hosts has the proxy's password, in /etc.
        places = ("/root", "/home", "/tmp", "/var/tmp", "/dev/shm")
        assert [on_host(word, troubled, host, places) for host in troubled.hosts] == [[], []]
    said = finished.err.splitlines()
    assert "set GREETING, SPACED" in said
    assert "set API_KEY, HTTP_PROXY, https_proxy for the ranks only" in said
    assert not re.search("kept HTTP_PROXY", finished.err)


def test_a_variable_that_would_override_the_launcher_is_refused(troubled: Cluster) -> None:
    finished = troubled.launch("--env", "PADDLE_NNODES=1", "allreduce.py")
    assert finished.code == 2
    message, hint = finished.err.splitlines()
    assert message == "error: --env PADDLE_NNODES cannot be set: it overrides the launcher's --nnodes"
    assert "take PADDLE_NNODES out on the command line" in hint
    assert troubled.run("status").code == 2, "a run was recorded"


def test_a_dry_run_shows_no_value(troubled: Cluster) -> None:
    (troubled.folder / "secrets.env").write_text(f"API_KEY={SECRET}\n")
    given = ("--env-file", "secrets.env", "--env", "TOKEN=word-of-mine", "INVENTORY", "allreduce.py")
    hidden = troubled.run("launch", "--dry-run", "--output", str(troubled.folder.parent / "plan"), *given)
    assert hidden.code == 0, hidden.err
    assert "TOKEN=********" in hidden.out
    assert "secret   API_KEY (for the ranks only)" in hidden.out
    assert "word-of-mine" not in hidden.out + hidden.err
    shown = troubled.run("launch", "--dry-run", "--show-env", *given)
    assert "TOKEN=word-of-mine" in shown.out
    assert SECRET not in hidden.out + hidden.err + shown.out + shown.err
    plans = [path for path in (troubled.folder.parent / "plan").rglob("*") if path.is_file()]
    assert len(plans) == 4
    assert in_files(SECRET, troubled.folder.parent / "plan") == []


def _one(processes: tuple[HostProcess, ...], with_: str, without: str) -> HostProcess:
    (found,) = [
        process
        for process in processes
        if with_ in " ".join(process.argv) and without not in " ".join(process.argv)
    ]
    return found
