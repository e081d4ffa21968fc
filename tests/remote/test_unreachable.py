"""Every way of not reaching a host: which stage, which host, what to do; no hang, no traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.errors import ExitCode, Unreachable
from clusterkit.inventory.model import Settings
from clusterkit.remote import Connections, ConnectOptions, Timeouts, fan_out
from tests.remote.sshd import Sshd, free_port, running

QUICK = ConnectOptions(timeouts=Timeouts(name=1, connect=1, banner=1, authentication=2), retry_for=1.5)


def failure(settings: Settings, options: ConnectOptions = QUICK) -> Unreachable:
    with Connections(options) as connections, pytest.raises(Unreachable) as caught:
        connections.to(settings).run("true", timeout=5)
    error = caught.value
    assert error.host == settings.alias
    assert error.message.startswith(settings.alias)
    assert error.exit_code == ExitCode.UNREACHABLE
    assert error.hint
    assert "\n" not in error.message + error.hint
    return error


def to(address: str, port: int, **more: object) -> Settings:
    return Settings("gpu07", address, port, "u", ssh_common_args="-F /dev/null", **more)  # type: ignore[arg-type]


def test_refused() -> None:
    port = free_port()
    error = failure(to("127.0.0.1", port))
    assert (error.stage, f"127.0.0.1:{port}" in error.message) == ("tcp", True)
    assert "refused" in error.message


def test_an_unknown_name() -> None:
    error = failure(to("no-such-host.invalid", 22))
    assert error.stage == "name"
    assert "no-such-host.invalid" in error.message
    assert "ansible_host" in error.hint


def test_a_name_that_cannot_be_one() -> None:
    assert failure(to("x" * 80, 22)).stage == "name"


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [answered.wait(60)][:0])
    begun = time.monotonic()
    error = failure(to("slow.example", 22))
    assert time.monotonic() - begun < 30
    assert error.stage == "name"
    assert "1 s" in error.message
    answered.set()


@contextlib.contextmanager
def listening(answer: bytes | None, *, close: bool = False) -> Iterator[int]:
    """A port on which something else than sshd answers (None: nothing is accepted, the backlog is full)."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0 if answer is None else 8)
        port = int(listener.getsockname()[1])
        kept: list[socket.socket] = []
        if answer is None:  # fill the backlog: the next SYN is dropped, as by a firewall
            for _ in range(3):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
                kept.append(filler)
        else:
            threading.Thread(target=_answer, args=(listener, answer, close, kept), daemon=True).start()
        yield port
        for connection in kept:
            connection.close()


def _answer(listener: socket.socket, answer: bytes, close: bool, kept: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.sendall(answer)
            if close:
                connection.close()
            else:
                kept.append(connection)


def test_dropped_packets() -> None:
    with listening(None) as port:
        error = failure(to("127.0.0.1", port))
    assert error.stage == "tcp"
    assert "within 1 s" in error.message
    assert "firewall" in error.hint


def test_a_listener_that_says_nothing() -> None:
    with listening(b"") as port:
        error = failure(to("127.0.0.1", port))
    assert error.stage == "banner"
    assert "no ssh banner came within 1 s" in error.message


def test_a_listener_that_is_no_sshd() -> None:
    with listening(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 200) as port:
        error = failure(to("127.0.0.1", port))
    assert error.stage == "banner"
    assert "not ssh" in error.message
    assert "ansible_port" in error.hint


def test_a_listener_that_hangs_up_is_tried_again_and_then_explained() -> None:
    begun = time.monotonic()
    with listening(b"", close=True) as port:
        error = failure(to("127.0.0.1", port))
    assert 0.5 < time.monotonic() - begun < 30
    assert error.stage == "banner"
    assert "tries" in error.message
    assert "MaxStartups" in error.hint
    assert type(error) is Unreachable


def test_a_handshake_that_stops_after_the_banner() -> None:
    begun = time.monotonic()
    with listening(b"SSH-2.0-Stuck\r\n") as port:
        error = failure(to("127.0.0.1", port))
    assert time.monotonic() - begun < 12
    assert error.stage == "banner"
    assert "handshake" in error.message


def test_nothing_is_left_that_keeps_the_process(tmp_path: Path) -> None:
    """Paramiko's handshake timer used to hold the process for 15 s, and its threads print tracebacks."""
    with listening(b"SSH-2.0-Stuck\r\n") as stuck, listening(b"", close=True) as closed:
        code = f"""
            from clusterkit.errors import Unreachable
            from clusterkit.inventory.model import Settings
            from clusterkit.remote import *
            quick = ConnectOptions(timeouts=Timeouts(banner=0.5), retry_for=0.5)
            for port in ({stuck}, {closed}):
                try:
                    connect(Settings("a", "127.0.0.1", port, "u"), quick).run("true", timeout=1)
                except Unreachable as error:
                    print(error.stage)
            """
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    assert done.stdout == "banner\nbanner\n"
    assert done.stderr == ""
    assert time.monotonic() - begun < 14


@pytest.mark.hosts
def test_a_stopped_sshd(folder: Path) -> None:
    with running(folder) as server:
        os.kill(server.process.pid, signal.SIGSTOP)
        error = failure(server.settings("gpu07"))
    assert error.stage == "banner"


@pytest.mark.hosts
def test_one_host_hides_no_other(server: Sshd, connections: Connections) -> None:
    with listening(b"") as stuck:
        hosts = {
            "bad1": server.settings("bad1", port=free_port()),
            "good1": server.settings("good1"),
            "bad2": server.settings("bad2", "no-such-host.invalid"),
            "bad3": server.settings("bad3", port=stuck),
            "good2": server.settings("good2", "127.0.0.2"),
        }
        with Connections(QUICK) as quick:
            remotes = {alias: quick.to(settings) for alias, settings in hosts.items()}
            outcome = fan_out(remotes, lambda remote: remote.run("echo ok", timeout=10).text)
    assert list(outcome.good) == ["good1", "good2"]
    stages = {alias: error.stage for alias, error in outcome.bad.items() if isinstance(error, Unreachable)}
    assert stages == {"bad1": "tcp", "bad2": "name", "bad3": "banner"}


@pytest.mark.hosts
def test_ipv6(folder: Path, connections: Connections) -> None:
    if not Path("/proc/net/if_inet6").exists() or not Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6")
    with running(folder, listen=("::1",)) as server:
        remote = connections.to(server.settings(address="::1"))
        assert remote.run("echo six", timeout=10).text == "six\n"
        assert server.known_hosts.read_text() == server.host_key_line(f"[::1]:{server.port}")
    error = failure(to("::1", server.port))
    assert f"[::1]:{server.port}" in error.message


@pytest.mark.hosts
def test_a_bad_ssh_argument_is_the_users_to_mend(server: Sshd) -> None:
    error = failure(server.settings("gpu07", ssh_extra_args="-o NoSuchThing=1"))
    assert error.stage == "configuration"
    assert "nosuchthing" in error.message.lower()
    assert "ansible_ssh_extra_args" in error.hint
    assert failure(server.settings("gpu07", ssh_extra_args="-o 'x")).stage == "configuration"
