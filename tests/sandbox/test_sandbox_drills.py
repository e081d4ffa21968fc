"""Power cuts, pulled cables, and an sshd that is gone, hangs or has another key."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from clusterkit.errors import HostError
from clusterkit.sandbox import Sandbox, entry, processes
from tests.sandbox.naming import Make

pytestmark = pytest.mark.hosts

SERVER = """
import socket, sys
server = socket.create_server(("0.0.0.0", 5000))
print("listening", flush=True)
connection, _ = server.accept()
connection.sendall(b"hello")
print(connection.recv(100))
"""
# Prints what the kernel tells of the connection: data, an orderly end, a reset, or nothing for two seconds.
CLIENT = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 5000), timeout=5)
print(connection.recv(5), flush=True)
connection.settimeout(2)
try:
    print(connection.recv(5))
except socket.timeout:
    print("silence")
except ConnectionError as error:
    print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def trio(make: Make) -> Sandbox:
    return make(3, "drills")


@pytest.fixture(autouse=True)
def restored(trio: Sandbox) -> Iterator[None]:
    yield
    for host in trio.status():
        if host.condition == "cut":
            trio.mend(host.name)
        elif host.condition != "running":
            trio.start(host.name)


def popen(sandbox: Sandbox, host: str, *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        entry.entering(sandbox.init(host), list(argv)),
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


@contextmanager
def connected(sandbox: Sandbox) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """A server on node01 and a client on node02 that have exchanged a word; both end with the block."""
    address = sandbox.addresses("node01")[0]
    with ExitStack() as stack:
        server = stack.enter_context(popen(sandbox, "node01", sys.executable, "-c", SERVER))
        stack.callback(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        client = stack.enter_context(popen(sandbox, "node02", sys.executable, "-c", CLIENT, address))
        stack.callback(client.kill)
        assert client.stdout is not None
        assert client.stdout.readline() == "b'hello'\n"
        yield server, client


def last_word(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=20)
    return out.strip()


def reachable(address: str, port: int = 22) -> bool:
    try:
        with socket.create_connection((address, port), timeout=0.5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def test_the_peer_of_a_killed_host_sees_neither_fin_nor_rst(trio: Sandbox) -> None:
    with connected(trio) as (_, client):
        trio.kill("node01")
        assert last_word(client) == "silence"


def test_killing_init_alone_would_be_seen(trio: Sandbox) -> None:
    """Shows that the test above can fail."""
    with connected(trio) as (_, client):
        processes.end([trio.init("node01")])
        assert last_word(client) == "b''"
    assert trio.status()[0].condition == "died"


def test_nothing_of_a_killed_host_is_left_and_it_can_come_back(trio: Sandbox) -> None:
    address, before = trio.addresses("node03"), trio.processes("node03")
    card = trio.sh("node03", ["cat", "/sys/class/net/eth0/address"]).stdout
    trio.sh("node03", "touch /root/was-here /tmp/was-here")
    trio.kill("node03")
    assert trio.processes("node03") == ()
    assert not any(processes.identity(process.pid) for process in before)
    assert not reachable(address[0])
    assert trio.status()[2].condition == "killed"
    with pytest.raises(HostError, match="node03 is not running"):
        trio.kill("node03")
    trio.start("node03")
    assert trio.addresses("node03") == address
    assert reachable(address[0])
    assert trio.sh("node03", ["cat", "/sys/class/net/eth0/address"]).stdout == card
    assert trio.sh("node03", "ls /root/was-here").stdout == "/root/was-here\n"
    assert "was-here" not in trio.sh("node03", "ls /tmp").stdout
    trio.kill("node03")
    trio.start("node03", fresh=True)
    assert trio.sh("node03", "ls /root").stdout == ""


def test_a_cut_host_runs_on_and_its_connections_survive_the_mending(trio: Sandbox) -> None:
    with connected(trio) as (server, client):
        trio.cut("node01")
        assert trio.status()[0].condition == "cut"
        assert "NO-CARRIER" in trio.sh("node01", "ip link show eth0").stdout
        assert not reachable(trio.addresses("node01")[0])
        trio.mend("node01")
        assert client.poll() is None
        client.kill()
        assert last_word(server) == "b''"
    assert reachable(trio.addresses("node01")[0])
    assert trio.status()[0].condition == "running"


def test_the_controller_can_be_shut_out_alone(trio: Sandbox) -> None:
    trio.block_controller("node01")
    try:
        assert not reachable(trio.addresses("node01")[0])
        with connected(trio) as (server, client):
            client.kill()
            assert last_word(server) == "b''"
    finally:
        trio.unblock_controller("node01")
    assert reachable(trio.addresses("node01")[0])


def test_sshd_stops_and_starts_without_the_host(trio: Sandbox) -> None:
    init, address = trio.init("node02"), trio.addresses("node02")[0]
    argv = ["ssh", "-F", str(trio.ssh_config), "node02", "echo in; read line; echo $line"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        assert session.stdout.readline() == "in\n"
        trio.sshd("node02", "stop")
        assert trio.status()[1].sshd_pid is None
        assert not reachable(address)
        session.stdin.write("still here\n")
        session.stdin.flush()
        assert session.stdout.readline() == "still here\n"
    trio.sshd("node02", "start")
    assert reachable(address)
    first = trio.status()[1].sshd_pid
    trio.sshd("node02", "restart")
    assert trio.status()[1].sshd_pid not in (None, first)
    assert trio.init("node02") == init


def test_a_paused_sshd_answers_nothing(trio: Sandbox) -> None:
    address = trio.addresses("node02")[0]
    trio.sshd("node02", "pause")
    with socket.create_connection((address, 22), timeout=1) as connection:
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(4)
    trio.sshd("node02", "resume")
    assert reachable(address)


def test_a_new_host_key_is_refused_by_ssh(trio: Sandbox) -> None:
    argv = ["ssh", "-F", str(trio.ssh_config), "node03", "true"]
    assert subprocess.run(argv, stdin=subprocess.DEVNULL, check=False, timeout=20).returncode == 0
    trio.new_host_key("node03")
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_four_hosts_are_up_soon(make: Make) -> None:
    began = time.monotonic()
    make(4, "speed")
    assert time.monotonic() - began < 30  # 0.2 s on an idle machine; this one may be busy
