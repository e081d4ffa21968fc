"""ssh_config and the inventory become an endpoint: by the ssh client, or without one."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest

from clusterkit.inventory.model import Settings
from clusterkit.remote import ConnectOptions
from clusterkit.remote.endpoint import Endpoint
from clusterkit.remote.resolve import resolve

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="the ssh client is not installed")


@pytest.fixture(params=["ssh -G", "parser"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Both ways of reading ssh_config: the answers are to be the same."""
    if request.param == "parser":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif shutil.which("ssh") is None:
        pytest.skip("the ssh client is not installed")
    return str(request.param)


def endpoint(text: str, tmp_path: Path, *, host: str = "gpu01", **more: object) -> tuple[Endpoint, list[str]]:
    path = tmp_path / "config"
    path.write_text(text)
    warnings: list[str] = []
    args = f"-F {path} {more.pop('args', '')}"
    settings = Settings("alias", host, ssh_common_args=args, **more)  # type: ignore[arg-type]
    return resolve(settings, ConnectOptions(), warnings.append), warnings


def test_keywords(by: str, tmp_path: Path) -> None:
    text = """
Host gpu*
  HostName %h.example
  Port 2201
  User trainer
  IdentityFile ~/keys/%r
  IdentitiesOnly yes
  CertificateFile /certs/x-cert.pub
  UserKnownHostsFile /k/one
  StrictHostKeyChecking yes
  HostKeyAlias shared
  HashKnownHosts yes
"""
    found, warnings = endpoint(text, tmp_path)
    assert (found.address, found.port, found.user) == ("gpu01.example", 2201, "trainer")
    assert found.identity_files == (Path.home() / "keys/trainer",)
    assert found.certificate_files == (Path("/certs/x-cert.pub"),)
    assert (found.identities_only, found.hash_names, found.host_key_rule) == (True, True, "strict")
    assert (found.known_hosts, found.host_key_name) == ((Path("/k/one"),), "shared")
    assert found.named == "alias (gpu01.example:2201)"
    assert (warnings == []) == (by == "ssh -G")
    assert all("no ssh client" in warning for warning in warnings)


def test_the_inventory_wins(by: str, tmp_path: Path) -> None:
    key = tmp_path / "my key"
    text = "Host gpu01\n  Port 2201\n  User other\n  IdentityFile /other\n"
    found, _ = endpoint(text, tmp_path, port=2299, user="me", private_key_file=str(key))
    assert (found.port, found.user) == (2299, "me")
    assert found.identity_files[0] == key


def test_ssh_arguments(by: str, tmp_path: Path) -> None:
    found, _ = endpoint(
        "", tmp_path, args="-o Port=2205 -o 'User me' -o StrictHostKeyChecking=no", ssh_extra_args="-i /k"
    )
    assert (found.port, found.user, found.host_key_rule) == (2205, "me", "off")
    assert Path("/k") in found.identity_files or by == "ssh -G"  # ssh leaves out a file that is not there


def test_proxy_jump(by: str, tmp_path: Path) -> None:
    text = """
Host gpu*
  ProxyJump me@[::1]:2222
Host far
  ProxyJump first,second:24
Host first
  HostName 10.0.0.1
"""
    found, _ = endpoint(text, tmp_path)
    assert found.jump is not None
    assert (found.jump.user, found.jump.address, found.jump.port, found.jump.jump) == (
        "me",
        "::1",
        2222,
        None,
    )
    assert found.jump.named == "bastion ::1 ([::1]:2222)"
    found, _ = endpoint(text, tmp_path, host="far")
    assert found.jump is not None
    assert found.jump.jump is not None
    assert [(hop.address, hop.port) for hop in (found.jump, found.jump.jump)] == [
        ("second", 24),
        ("10.0.0.1", 22),
    ]


def test_proxy_command_quotes_what_it_fills_in(by: str, tmp_path: Path) -> None:
    text = "Host gpu01\n  User me\n  ProxyCommand relay --to %h --port %p --as %r\n"
    found, _ = endpoint(text, tmp_path, port=2201)
    assert found.proxy_command == "relay --to gpu01 --port 2201 --as me"


def home(by: str) -> Path:
    """The home that `~` means: OpenSSH asks the account, everybody else HOME."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir) if by == "ssh -G" else Path.home()


def test_nothing_configured(by: str, tmp_path: Path) -> None:
    found, _ = endpoint("", tmp_path)
    assert (found.address, found.port, found.host_key_name) == ("gpu01", 22, "gpu01")
    assert home(by) / ".ssh/id_ed25519" in found.identity_files
    assert found.known_hosts[0] == home(by) / ".ssh/known_hosts"
    assert found.agent == (os.environ.get("SSH_AUTH_SOCK") or None)
    assert (found.jump, found.proxy_command, found.host_key_rule) == (None, None, "trust first")


@needs_ssh
def test_what_only_the_client_understands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "more").write_text("IdentityAgent ~/agent.sock\n")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/env/agent")
    known = 'UserKnownHostsFile /a/one "/b c/two"'
    text = f"Include {tmp_path}/more\nMatch exec true\n  Port 2244\nHost *\n  {known}\n"
    found, _ = endpoint(text, tmp_path)
    assert found.port == 2244
    assert found.agent == str(home("ssh -G") / "agent.sock")
    assert found.known_hosts == (Path("/a/one"), Path("/b c/two"))
    assert endpoint("IdentityAgent none\n", tmp_path)[0].agent is None
    assert endpoint("IdentityAgent SSH_AUTH_SOCK\n", tmp_path)[0].agent == "/env/agent"
    monkeypatch.setenv("OTHER", "/other/agent")
    assert endpoint("IdentityAgent $OTHER\n", tmp_path)[0].agent == "/other/agent"


@needs_ssh
def test_methods_and_batch_mode(tmp_path: Path) -> None:
    found, _ = endpoint("PasswordAuthentication no\nPubkeyAuthentication no\nBatchMode yes\n", tmp_path)
    assert (found.methods, found.ask) == (("keyboard-interactive",), False)


@pytest.mark.hosts
def test_a_host_is_reached_without_a_ssh_client(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from clusterkit.remote import Connections
    from tests.remote.sshd import Sshd

    server: Sshd = request.getfixturevalue("server")
    monkeypatch.setenv("PATH", str(tmp_path))
    with Connections() as connections:
        for number in range(3):
            assert connections.to(server.settings(f"gpu{number}")).run("true", timeout=10).ok
        assert len(connections.warnings) == 1
        assert "no ssh client" in connections.warnings[0]
