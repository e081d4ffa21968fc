"""Streams over a real sshd: raw bytes both ways, and what a lost connection does to them."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from clusterkit.errors import HostTimeout, Unreachable
from clusterkit.remote import Connections, Remote, Stream
from clusterkit.remote import transport as transport_module
from tests.remote.sshd import Sshd

pytestmark = pytest.mark.hosts


@pytest.fixture
def remote(server: Sshd, connections: Connections) -> Remote:
    return connections.to(server.settings())


def test_bytes_travel_both_ways_at_once(remote: Remote) -> None:
    stream = remote.open("exec cat", timeout=10)
    data = os.urandom(8 << 20)

    def send() -> None:
        stream.send(data)
        stream.finish()

    threading.Thread(target=send, daemon=True).start()
    digest, size = hashlib.sha256(), 0
    while piece := stream.read(100_000, 20):
        assert len(piece) <= 100_000
        digest.update(piece)
        size += len(piece)
    assert size == len(data)
    assert digest.digest() == hashlib.sha256(data).digest()
    assert stream.wait(5).status == 0
    stream.close()


def test_the_shell_reads_none_of_the_programs_input(remote: Remote) -> None:
    """dash reads ahead in blocks: what follows the script at once would be lost in its buffer."""
    stream = remote.open("exec head -c 5", timeout=10)
    stream.send(b"12345")
    assert stream.read(5, 10) == b"12345"
    assert stream.wait(5).status == 0
    stream.close()


def test_a_script_that_fails_before_its_program_reads_no_input_as_commands(remote: Remote) -> None:
    stream = remote.open("cd /nowhere || exit 9; exec cat", timeout=10)
    with pytest.raises(Unreachable):
        _keep_sending(stream, b"echo this must not run\n")
    result = stream.wait(5)
    assert (result.status, result.stdout) == (9, b"")
    assert b"nowhere" in result.stderr
    stream.close()
    stream = remote.open("false", timeout=10)
    assert (stream.wait(5).status, stream.read(10, 5)) == (1, b"")
    stream.close()


def test_wait_gives_status_rest_and_the_end_of_stderr(remote: Remote) -> None:
    stream = remote.open(
        "exec sh -c 'echo one; head -c 100000 /dev/zero >&2; echo last >&2; echo two; exit 6'", timeout=10
    )
    assert stream.read(4, 10) == b"one\n"
    result = stream.wait(10)
    assert (result.status, result.stdout) == (6, b"two\n")
    assert len(result.stderr) == 65536
    assert result.stderr.endswith(b"\0last\n")
    stream.close()


def test_a_flood_on_stderr_does_not_stop_stdout(remote: Remote) -> None:
    stream = remote.open("exec sh -c 'head -c 20000000 /dev/zero >&2; echo through'", timeout=10)
    assert stream.read(100, 30) == b"through\n"
    stream.close()


def test_a_program_ended_by_a_signal(remote: Remote) -> None:
    stream = remote.open("exec sh -c 'kill -KILL $$'", timeout=10)
    assert stream.wait(5).status == 137
    stream.close()


def test_read_has_a_limit_and_goes_on_afterwards(remote: Remote) -> None:
    stream = remote.open("sleep 1; exec echo late", timeout=10, doing="following the logs")
    with pytest.raises(HostTimeout, match="following the logs"):
        stream.read(10, 0.2)
    assert stream.read(10, 10) == b"late\n"
    with pytest.raises(HostTimeout):
        remote.open("exec sleep 60", timeout=10).wait(0.3)
    stream.close()


def test_wait_does_not_wait_for_what_was_left_in_the_background(remote: Remote) -> None:
    begun = time.monotonic()
    stream = remote.open("sleep 60 & exec echo hi", timeout=10)
    assert stream.wait(50).stdout == b"hi\n"
    assert time.monotonic() - begun < 40
    stream.close()


def test_close_does_not_end_what_runs(remote: Remote) -> None:
    stream = remote.open("echo $$; exec sleep 30", timeout=10)
    pid = int(stream.read(20, 10))
    stream.close()
    time.sleep(0.3)
    assert remote.run(f"kill -0 {pid} && kill {pid}", timeout=10).ok


@pytest.fixture
def lonely(server: Sshd) -> Iterator[tuple[Remote, list[int]]]:
    """A remote with a connection of its own, and the sshd processes that serve it."""
    with Connections() as connections:
        before = set(server.session_pids())
        remote = connections.to(server.settings())
        remote.run("true", timeout=10)
        time.sleep(0.2)
        yield remote, [pid for pid in server.session_pids() if pid not in before]


def test_a_closed_connection_is_not_an_end_of_file(lonely: tuple[Remote, list[int]]) -> None:
    remote, sessions = lonely
    stream = remote.open("exec cat", timeout=10, doing="following gpu01")
    threading.Timer(0.3, _signal, (sessions, signal.SIGKILL)).start()
    with pytest.raises(Unreachable) as caught:
        stream.read(10, 20)
    assert caught.value.stage == "connection"
    assert "following gpu01" in caught.value.message
    with pytest.raises(Unreachable):
        stream.send(b"x")
    assert remote.run("echo connected anew", timeout=10).ok


def _keep_sending(stream: Stream, data: bytes) -> None:
    for _ in range(100):
        stream.send(data)
        time.sleep(0.02)


def _signal(pids: list[int], signum: int) -> None:
    for pid in pids:
        os.kill(pid, signum)


def test_a_silent_peer_is_noticed(lonely: tuple[Remote, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP: the kernel acknowledges for sshd, so only ssh's own question can tell."""
    monkeypatch.setattr(transport_module, "ASK_AFTER_S", 0.3)
    monkeypatch.setattr(transport_module, "SILENCE_S", 1.5)
    remote, sessions = lonely
    stream = remote.open("exec cat", timeout=10)
    _signal(sessions, signal.SIGSTOP)
    begun = time.monotonic()
    try:
        with pytest.raises(Unreachable, match="not answered") as caught:
            stream.read(10, 20)
    finally:
        _signal(sessions, signal.SIGCONT)
    assert caught.value.stage == "connection"
    assert 1 < time.monotonic() - begun < 15


def test_a_silent_peer_is_noticed_while_sending(
    lonely: tuple[Remote, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "ASK_AFTER_S", 0.3)
    monkeypatch.setattr(transport_module, "SILENCE_S", 1.5)
    remote, sessions = lonely
    stream = remote.open("exec cat >/dev/null", timeout=10)
    _signal(sessions, signal.SIGSTOP)
    try:
        with pytest.raises(Unreachable) as caught:
            _keep_sending(stream, bytes(1 << 20))
    finally:
        _signal(sessions, signal.SIGCONT)
    assert caught.value.stage == "connection"


def test_a_short_silence_is_survived(
    lonely: tuple[Remote, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "ASK_AFTER_S", 0.3)
    monkeypatch.setattr(transport_module, "SILENCE_S", 2.5)
    remote, sessions = lonely
    stream = remote.open("exec cat", timeout=10)
    _signal(sessions, signal.SIGSTOP)
    stream.send(b"before")
    time.sleep(1.2)
    _signal(sessions, signal.SIGCONT)
    assert stream.read(10, 10) == b"before"
    time.sleep(2.8)  # quiet, but asked and answering
    stream.send(b"after")
    assert stream.read(10, 10) == b"after"
    stream.close()
