"""Hosts behind others: one connection to the bastion, many through it; and sshd's MaxStartups."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from paramiko import SSHException

from clusterkit.errors import Unreachable
from clusterkit.inventory.model import Settings
from clusterkit.remote import Connections, ConnectOptions, Timeouts, fan_out
from clusterkit.remote.transport import WatchedPacketizer
from tests.remote.sshd import Sshd, running

pytestmark = pytest.mark.hosts


def config(folder: Path, text: str, server: Sshd) -> Path:
    """A ssh_config with our key and known_hosts for every host."""
    common = f"""
Host *
  IdentityFile {server.key}
  UserKnownHostsFile {server.known_hosts}
  GlobalKnownHostsFile /dev/null
  IdentityAgent none
"""
    path = folder / "ssh_config"
    path.write_text(text + common)
    return path


def behind(server: Sshd, alias: str, address: str, path: Path) -> Settings:
    return Settings(alias, address, server.port, server.user, ssh_common_args=f"-F {path}")


def test_forty_hosts_behind_one_with_default_limits(folder: Path, connections: Connections) -> None:
    """MaxStartups 10:30:100 of the hosts' sshd too: they share one here."""
    with running(folder) as server:
        at = f"HostName 127.0.0.1\n  Port {server.port}\n  User root"
        text = f"Host 127.0.1.*\n  ProxyJump jump\nHost jump\n  {at}\n"
        path = config(folder, text, server)
        hosts = {f"n{n}": connections.to(behind(server, f"n{n}", f"127.0.1.{n}", path)) for n in range(1, 41)}
        outcome = fan_out(hosts, lambda remote: remote.run("echo $SSH_CONNECTION", timeout=60).text)
        assert {alias: str(error) for alias, error in outcome.bad.items()} == {}
        assert [line.split()[2] for line in outcome.good.values()] == [f"127.0.1.{n}" for n in range(1, 41)]
        assert server.log().count("Accepted publickey") == 41
        assert len(connections.recorded_keys) == 41


def test_a_chain(folder: Path, connections: Connections) -> None:
    with running(folder, "LogLevel VERBOSE") as server:
        at = f"Port {server.port}\n  User root"
        text = f"""
Host 127.0.2.9
  ProxyJump first,root@127.0.2.2:{server.port}
Host first
  HostName 127.0.2.1
  {at}
"""
        path = config(folder, text, server)
        remote = connections.to(behind(server, "deep", "127.0.2.9", path))
        assert remote.run("echo deep", timeout=20).text == "deep\n"
        assert server.log().count("Accepted publickey") == 3
        names = [key.name.split("]")[0][1:] for key in connections.recorded_keys]
        assert names == ["127.0.2.1", "127.0.2.2", "127.0.2.9"]


def failure(settings: Settings) -> Unreachable:
    options = ConnectOptions(timeouts=Timeouts(connect=3, banner=3), retry_for=2)
    with Connections(options) as connections, pytest.raises(Unreachable) as caught:
        connections.to(settings).run("true", timeout=5)
    assert caught.value.host == settings.alias
    assert "\n" not in caught.value.message
    return caught.value


def test_what_fails_at_or_behind_the_bastion(folder: Path) -> None:
    with running(folder, "PermitOpen 127.0.2.5:* 127.0.2.6:1") as server:
        at = f"Port {server.port}\n  User root"
        text = f"""
Host 127.0.2.*
  ProxyJump jump
Host jump
  HostName 127.0.0.1
  {at}
Host 127.0.3.*
  ProxyJump nowhere
Host nowhere
  HostName no-such-host.invalid
Host 127.0.4.*
  Port 2222
  ProxyJump 127.0.4.1:2222
Host circle-a
  ProxyJump circle-b
Host circle-b
  ProxyJump circle-a
"""
        path = config(folder, text, server)
        refused = failure(behind(server, "a", "127.0.2.6", path))
        assert (refused.stage, "forbids forwarding" in refused.message) == ("tcp", True)
        closed = Settings("b", "127.0.2.6", 1, "root", ssh_common_args=f"-F {path}")
        error = failure(closed)
        assert (error.stage, "bastion jump" in error.message) == ("tcp", True)
        error = failure(behind(server, "c", "127.0.3.1", path))
        assert (error.stage, "bastion nowhere" in error.message) == ("name", True)
        error = failure(behind(server, "d", "circle-a", path))
        assert (error.stage, "circles" in error.message) == ("configuration", True)
        # A pattern that matches the bastion too: ssh itself refuses that.
        error = failure(Settings("e", "127.0.4.2", ssh_common_args=f"-F {path}"))
        assert (error.stage, "loop" in error.message) == ("configuration", True)


def test_a_dead_bastion_is_waited_for_once(folder: Path) -> None:
    """Not once for each host behind it."""
    with socket.create_server(("127.0.0.1", 0)) as silent, running(folder) as server:
        port = silent.getsockname()[1]
        path = config(folder, f"Host 127.0.1.*\n  ProxyJump 127.0.0.1:{port}\n", server)
        quick = ConnectOptions(timeouts=Timeouts(banner=1))
        begun = time.monotonic()
        with Connections(quick) as found:
            hosts = {f"n{n}": found.to(behind(server, f"n{n}", f"127.0.1.{n}", path)) for n in range(1, 31)}
            outcome = fan_out(hosts, lambda remote: remote.run("true", timeout=5))
        assert time.monotonic() - begun < 20
    assert len(outcome.bad) == 30
    odd = [str(e) for e in outcome.bad.values() if f"bastion 127.0.0.1 (127.0.0.1:{port})" not in e.message]
    assert odd == []


@pytest.mark.parametrize("error", [EOFError(), OSError("closed"), SSHException("not active")])
def test_a_bastion_that_is_gone_is_no_error_of_who_closes_behind_it(error: Exception) -> None:
    """The reader's thread closes last: what it raises there would be a traceback on the terminal."""

    class Gone:
        def close(self) -> None:
            raise error

    packetizer = WatchedPacketizer(Gone())
    packetizer.close()
    assert packetizer.closed


def test_a_proxy_command(folder: Path, connections: Connections) -> None:
    with running(folder) as server:
        relay = folder / "relay.py"
        relay.write_text(
            "import os, socket, sys, threading\n"
            "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
            "def up():\n"
            "    while data := os.read(0, 65536): s.sendall(data)\n"
            "    s.shutdown(socket.SHUT_WR)\n"
            "threading.Thread(target=up, daemon=True).start()\n"
            "while data := s.recv(65536): os.write(1, data)\n"
        )
        text = f"""
Host by-proxy
  ProxyCommand python3 {relay} 127.0.0.7 %p
Host broken
  ProxyCommand sh -c 'echo no way there >&2; exit 3'
"""
        path = config(folder, text, server)
        remote = connections.to(behind(server, "a", "by-proxy", path))
        assert remote.run("echo $SSH_CONNECTION", timeout=20).text.split()[2] == "127.0.0.7"
        error = failure(behind(server, "b", "broken", path))
        assert error.stage == "tcp"
        assert "no way there" in error.message
        assert "by hand" in error.hint


def test_startups_that_sshd_drops_are_tried_again(folder: Path, connections: Connections) -> None:
    with running(folder, "MaxStartups 3:100:3") as server:
        hosts = {f"n{n}": connections.to(server.settings(f"n{n}", f"127.0.3.{n}")) for n in range(1, 25)}
        outcome = fan_out(hosts, lambda remote: remote.run("echo ok", timeout=30).text)
        assert {alias: str(error) for alias, error in outcome.bad.items()} == {}
        assert "past MaxStartups" in server.log() or "drop connection" in server.log()
