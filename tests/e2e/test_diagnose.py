"""Faults as they happen to people, made for real, and what `diagnose` says about each."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from clusterkit.sandbox.processes import HostProcess
from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.e2e.cluster import Cluster, Running
from tests.e2e.conftest import used_once
from tests.e2e.records import newest_run
from tests.e2e.test_failure import status_once_over
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]

# Quicker than three, and enough for one that fails and one that follows.
TWO = ("--limit", "node02,node03")
CGROUPS = Path("/sys/fs/cgroup")


def diagnosed(cluster: Cluster, *, code: int = 0) -> dict[str, Any]:
    finished = cluster.run("diagnose", "--json")
    assert finished.code == code, finished.out + finished.err
    document: dict[str, Any] = json.loads(finished.out)
    validate("diagnose", document)
    # Not every machine that tests run on lets its root read the kernel's log.
    assert (document["away"], [each for each in document["unread"] if "kernel log" not in each]) == ({}, [])
    return document


def known(document: dict[str, Any]) -> str:
    assert document["known"], document
    return str(document["known"][0]["rule"])


def script_of(cluster: Cluster, host: str, rank: int) -> HostProcess:
    """The process of a rank's script on its host."""
    (found,) = [
        process
        for process in cluster.sandbox.processes(host)
        if process.environment.get("PADDLE_TRAINER_ID") == str(rank)
        and any(word.endswith("faulty.py") for word in process.argv)
        and not any(word.endswith("agent.pyz") for word in process.argv)
    ]
    return found


@contextmanager
def small_disk(cluster: Cluster, host: str) -> Iterator[None]:
    """A disk of 64 kB at /tmp/small of the host."""
    made = cluster.sandbox.sh(host, "mkdir -p /tmp/small && mount -t tmpfs -o size=64k tmpfs /tmp/small")
    assert made.returncode == 0, made.stderr
    try:
        yield
    finally:
        cluster.sandbox.sh(host, "umount /tmp/small")


@contextmanager
def small_shm(cluster: Cluster, host: str) -> Iterator[None]:
    """A /dev/shm of 4 MB, as a container without --shm-size nearly has it."""
    made = cluster.sandbox.sh(host, "mount -t tmpfs -o size=4m tmpfs /dev/shm")
    assert made.returncode == 0, made.stderr
    try:
        yield
    finally:
        cluster.sandbox.sh(host, "umount /dev/shm")


@pytest.mark.parametrize(
    ("fault", "rule", "words"),
    [
        ("address", "address-in-use", "OSError: [Errno 98] Address already in use"),
        ("disk", "disk-full", "OSError: [Errno 28] No space left on device"),
        ("shm", "shared-memory", "signal 7"),
        ("proxy", "proxy", "httpx.ProxyError: 403 Forbidden"),
    ],
)
def test_a_fault_of_one_rank(three: Cluster, fault: str, rule: str, words: str) -> None:
    # What the check of shared memory would refuse is just what shall go wrong.
    with small_disk(three, "node02"), small_shm(three, "node02"):
        finished = three.launch(*TWO, "--no-preflight", "faulty.py", "1", fault)
    assert finished.code not in (0, 4, 70), finished.err
    assert f"diagnosis ({rule}): " in finished.err
    document = diagnosed(three)
    assert known(document) == rule
    assert (document["root"]["rank"], document["root"]["host"]) == (1, "node02")
    assert words in document["known"][0]["evidence"]["line"]
    assert {each["why"] for each in document["followed"]} == {"stopped"}
    assert document["failed_too"] == []


def test_a_run_that_nobody_followed_is_read_on_its_hosts(three: Cluster) -> None:
    assert three.launch(*TWO, "--detach", "faulty.py", "2", "module").code == 0
    status_once_over(three)
    document = diagnosed(three)
    assert known(document) == "missing-module"
    assert document["known"][0]["evidence"]["values"] == {"module": "nosuch_module"}
    assert document["root"]["traceback"][-1] == "ModuleNotFoundError: No module named 'nosuch_module'"
    shown = three.run("diagnose").out
    assert "missing-module: the Python of node03 has no module nosuch_module." in shown
    assert "first to fail: rank 2 on node03, exit 1" in shown
    for host in three.hosts:
        three.sandbox.sh(host, f"rm -rf /root/.clusterkit/{host}/runs/{newest_run(three)}")
    finished = three.run("diagnose")
    assert finished.code == 0, finished.err
    assert "  ModuleNotFoundError: No module named 'nosuch_module'" in finished.out, (
        "the record has its last lines"
    )
    assert "not read: node03: the run's files are not there any more" in finished.out


def running(cluster: Cluster, fault: str) -> Running:
    launch = cluster.start("launch", *TWO, "INVENTORY", "faulty.py", "0", fault)
    launch.until("all 2 nodes joined")
    return launch


def test_a_rank_that_somebody_killed(three: Cluster) -> None:
    launch = running(three, "kill")
    os.kill(script_of(three, "node02", 0).pid, signal.SIGKILL)
    finished = launch.wait()
    assert finished.code == 128 + signal.SIGKILL, finished.err
    assert "`clusterkit diagnose" in finished.err, "a launch cannot know who killed it"
    document = diagnosed(three)
    assert known(document) == "killed"
    assert (document["root"]["rank"], document["root"]["signal"]) == (0, 9)
    assert document["known"][0]["evidence"]["line"] == "signal 9 (SIGKILL)"


@contextmanager
def memory_limit(name: str, bytes_: int) -> Iterator[Path]:
    """A memory cgroup of this machine (v1 or v2); skips the test where none can be made."""
    second = (CGROUPS / "cgroup.controllers").exists()
    folder = (CGROUPS if second else CGROUPS / "memory") / name
    try:
        folder.mkdir()
        (folder / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(bytes_))
        with suppress(OSError):  # Where there is swap, it would only be slow.
            swap = "memory.swap.max" if second else "memory.memsw.limit_in_bytes"
            (folder / swap).write_text("0" if second else str(bytes_))
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield folder
    finally:
        end = time.monotonic() + 10
        while folder.exists() and time.monotonic() < end:
            try:
                folder.rmdir()
            except OSError:
                time.sleep(0.2)


def test_a_rank_that_the_kernel_killed_for_its_memory(three: Cluster) -> None:
    """The limit is a cgroup's, as a container's is. All sandbox hosts share one kernel, and so its log."""
    three.sandbox.sh("node02", "rm -f /tmp/go")
    with memory_limit(f"clusterkit-test-{os.getpid()}", 80_000_000) as group:
        launch = running(three, "memory")
        (group / "cgroup.procs").write_text(str(script_of(three, "node02", 0).pid))
        three.sandbox.sh("node02", "touch /tmp/go")
        finished = launch.wait()
    assert finished.code == 128 + signal.SIGKILL, finished.err
    document = diagnosed(three)
    if document["unread"]:
        pytest.skip(f"the kernel's log cannot be read here: {document['unread'][0]}")
    assert known(document) == "out-of-memory-kill-cgroup"
    evidence = document["known"][0]["evidence"]
    assert (evidence["where"], evidence["host"]) == ("kernel", "node02")
    assert document["known"][0]["meaning"].startswith("the kernel of node02 killed python")


@contextmanager
def filtered(cluster: Cluster, host: str, verdict: str) -> Iterator[None]:
    """New connections from elsewhere to the host's ephemeral ports meet a strict firewall."""
    low, high = cluster.sandbox.sh(host, "cat /proc/sys/net/ipv4/ip_local_port_range").stdout.split()
    rules = [
        "add table inet drill",
        "add chain inet drill in { type filter hook input priority 0; }",
        f"add rule inet drill in iifname != lo tcp dport {low}-{high} ct state new {verdict}",
    ]
    done = cluster.sandbox.sh(host, ["nft", "-f", "-"], stdin="\n".join(rules) + "\n")
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        cluster.sandbox.sh(host, ["nft", "delete", "table", "inet", "drill"])


@contextmanager
def impatient(cluster: Cluster, host: str) -> Iterator[None]:
    """The host's kernel gives up a connection that nobody answers after 3 s, not after two minutes."""
    file = "/proc/sys/net/ipv4/tcp_syn_retries"
    before = cluster.sandbox.sh(host, f"cat {file}").stdout.strip()
    done = cluster.sandbox.sh(host, f"echo 1 > {file}")
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        cluster.sandbox.sh(host, f"echo {before} > {file}")


@pytest.mark.parametrize(
    ("verdict", "rule", "words"),
    [
        ("reject with tcp reset", "connection-refused", "node03 was refused by node02 ({}) on port "),
        ("drop", "connection-timed-out", "node03 got no answer from node02 ({}) on port "),
    ],
)
def test_a_firewall_before_the_ports_that_gloo_listens_on(
    three: Cluster, verdict: str, rule: str, words: str
) -> None:
    """The pair, and the port that was really meant: one of the kernel's choice."""
    with filtered(three, "node02", verdict), impatient(three, "node03"):
        one_each = ("--nproc-per-node", "1", "--no-preflight")
        finished = three.launch(*TWO, *one_each, "allreduce.py", limit=200)
    assert finished.code not in (0, 70), finished.err
    document = diagnosed(three)
    assert known(document) == rule
    meaning = document["known"][0]["meaning"]
    expected = words.format(three.sandbox.addresses("node02")[0])
    assert meaning.startswith(expected)
    assert int(meaning.removeprefix(expected).split(":")[0]) >= 32768
    assert document["known"][0]["evidence"]["host"] == "node03"


@pytest.fixture
def misnamed(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """Two hosts with one rank each, whose own names resolve to 127.0.1.1 as on a fresh Debian."""
    spec = SandboxSpec.of(2, name="e2e-misnamed", loopback_name=True, nproc=1, python=(sys.executable,))
    yield from used_once(make_sandbox(spec), tmp_path)


def test_a_script_that_lets_gloo_ask_for_the_host_s_own_name(misnamed: Cluster) -> None:
    """clusterkit names the interface; a script that takes that away meets Debian's 127.0.1.1."""
    script = misnamed.folder / "unnamed.py"
    before = "import os\nos.environ.pop('GLOO_SOCKET_IFNAME')\n"
    script.write_text(before + (misnamed.folder / "allreduce.py").read_text())
    finished = misnamed.launch("unnamed.py", limit=200)
    assert finished.code not in (0, 70), finished.err
    assert "diagnosis (loopback-name): " in finished.err
    document = diagnosed(misnamed)
    assert known(document) == "loopback-name"
    assert document["known"][0]["evidence"]["values"]["address"] == "127.0.1.1"
