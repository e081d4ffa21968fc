"""Logging in to a real sshd: keys, agents, certificates, passwords; and being refused."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import Unreachable
from clusterkit.inventory.model import Secret
from clusterkit.remote import Connections, ConnectOptions, fan_out
from tests.remote.accounts import PASSWORD, Accounts
from tests.remote.sshd import Sshd, keygen, running

pytestmark = pytest.mark.hosts


class Person:
    """Somebody at the terminal: answers, and remembers what was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, bool]] = []
        self._lock = threading.Lock()

    def __call__(self, question: str, echo: bool) -> str:
        with self._lock:
            self.asked.append((question, echo))
            return self.answers.pop(0) if self.answers else ""


def refusal(server: Sshd, options: ConnectOptions | None = None, **changes: Any) -> Unreachable:
    with Connections(options) as connections, pytest.raises(Unreachable) as caught:
        connections.to(server.settings(**changes)).run("true", timeout=10)
    assert caught.value.stage == "authentication"
    assert "\n" not in caught.value.message
    return caught.value


def who(server: Sshd, options: ConnectOptions | None = None, **changes: Any) -> str:
    with Connections(options) as connections:
        return connections.to(server.settings(**changes)).run("id -un", timeout=10).text.strip()


def test_a_wrong_key_names_the_user_and_what_was_tried(server: Sshd, tmp_path: Path) -> None:
    key = keygen(tmp_path / "wrong")
    error = refusal(server, private_key_file=str(key))
    assert server.user in error.message
    assert str(key) in error.message
    assert "ssh-copy-id" in error.hint or "--ask-pass" in error.hint


def test_nothing_to_try_is_said(server: Sshd, tmp_path: Path) -> None:
    error = refusal(server, private_key_file=str(tmp_path / "missing"))
    assert "no key, agent or password" in error.message


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("rsa", ("-b", "2048")),
        ("ecdsa", ("-b", "384")),
        ("rsa", ("-b", "2048", "-m", "PEM")),
        ("rsa", ("-b", "2048", "-m", "PKCS8")),
        ("ecdsa", ("-m", "PEM")),
    ],
)
def test_key_files_of_every_kind(server: Sshd, tmp_path: Path, kind: str, more: tuple[str, ...]) -> None:
    key = keygen(tmp_path / "key", kind, "", *more)
    authorize(server, key)
    assert who(server, private_key_file=str(key)) == server.user


def authorize(server: Sshd, key: Path) -> None:
    with open(server.folder / "authorized_keys", "a") as file:
        file.write(key.with_name(key.name + ".pub").read_text())


@pytest.mark.parametrize("more", [(), ("-m", "PEM"), ("-Z", "aes256-gcm@openssh.com")])
def test_a_passphrase_is_asked_once_for_all_hosts(
    server: Sshd, tmp_path: Path, more: tuple[str, ...]
) -> None:
    kind = ("rsa", "-b", "2048") if "PEM" in more else ("ed25519",)
    key = keygen(tmp_path / "locked", kind[0], "open sesame", *kind[1:], *more)
    authorize(server, key)
    person = Person("open sesame")
    with Connections(ConnectOptions(prompter=person)) as connections:
        remotes = {
            f"gpu{n}": connections.to(server.settings(f"gpu{n}", f"127.0.0.{n}", private_key_file=str(key)))
            for n in range(1, 9)
        }
        outcome = fan_out(remotes, lambda remote: remote.run("true", timeout=30))
    assert not outcome.bad
    assert person.asked == [(f"Passphrase for {key}", False)]


def test_a_wrong_passphrase_is_asked_again_thrice(server: Sshd, tmp_path: Path) -> None:
    key = keygen(tmp_path / "locked", passphrase="right one")
    authorize(server, key)
    person = Person("wrong", "right one")
    assert who(server, ConnectOptions(prompter=person), private_key_file=str(key)) == server.user
    assert "wrong, try 2 of 3" in person.asked[1][0]
    person = Person("a", "b", "c", "right one")
    error = refusal(server, ConnectOptions(prompter=person), private_key_file=str(key))
    assert len(person.asked) == 3
    assert "the passphrase was wrong" in error.message
    assert "ssh-add" in error.hint


def test_a_locked_key_without_anybody_to_ask(server: Sshd, tmp_path: Path) -> None:
    key = keygen(tmp_path / "locked", passphrase="secret words")
    error = refusal(server, private_key_file=str(key))
    assert "has a passphrase and nobody can be asked" in error.message
    assert "ssh-add" in error.hint


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """The socket of a ssh-agent of this test's own."""
    path = tmp_path / "agent"
    started = subprocess.run(["ssh-agent", "-s", "-a", path], capture_output=True, text=True, check=True)
    pid = int(started.stdout.split("SSH_AGENT_PID=")[1].split(";")[0])
    yield str(path)
    os.kill(pid, signal.SIGTERM)


def add(agent: str, key: Path) -> None:
    subprocess.run(
        ["ssh-add", "-q", key], env={**os.environ, "SSH_AUTH_SOCK": agent}, check=True, capture_output=True
    )


def with_agent(server: Sshd, agent: str, *options: str) -> str:
    return server.args(*options).replace("IdentityAgent=none", f"IdentityAgent={agent}")


def test_an_agent_is_shared_by_all_hosts(server: Sshd, tmp_path: Path, agent: str) -> None:
    key = keygen(tmp_path / "held")
    authorize(server, key)
    add(agent, key)
    key.unlink()
    args = with_agent(server, agent)
    with Connections() as connections:
        remotes = {
            f"gpu{n}": connections.to(
                server.settings(f"gpu{n}", f"127.0.0.{n}", private_key_file=None, ssh_common_args=args)
            )
            for n in range(1, 9)
        }
        assert not fan_out(remotes, lambda remote: remote.run("true", timeout=30)).bad


def test_many_agent_keys_and_the_right_one(server: Sshd, tmp_path: Path, agent: str) -> None:
    """sshd counts each key and hangs up after six: the one that was named has to come first."""
    for number in range(7):
        add(agent, keygen(tmp_path / f"other{number}"))
    right = keygen(tmp_path / "right")
    authorize(server, right)
    add(agent, right)
    args = with_agent(server, agent)
    assert who(server, private_key_file=str(right), ssh_common_args=args) == server.user
    # Also when only its public half is on the disk.
    right.unlink()
    public = str(right.with_suffix(".pub"))
    assert who(server, private_key_file=public, ssh_common_args=args) == server.user
    error = refusal(server, private_key_file=None, ssh_common_args=args)
    assert "hung up" in error.message
    assert "other3" in error.message
    assert "IdentitiesOnly" in error.hint
    only = with_agent(server, agent, "IdentitiesOnly=yes", f"IdentityFile={public}")
    assert who(server, private_key_file=None, ssh_common_args=only) == server.user


def test_an_agent_that_is_gone_is_named(server: Sshd, tmp_path: Path) -> None:
    args = with_agent(server, str(tmp_path / "gone"))
    assert "does not answer" in refusal(server, private_key_file=None, ssh_common_args=args).message


def test_a_users_certificate(folder: Path, tmp_path: Path, agent: str) -> None:
    authority, key = keygen(folder / "authority"), keygen(tmp_path / "user", "rsa", "", "-b", "2048")
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", "root", str(key) + ".pub"], check=True
    )
    with running(folder, f"TrustedUserCAKeys {authority}.pub") as server:
        assert who(server, private_key_file=str(key)) == "root"
        moved = tmp_path / "elsewhere-cert.pub"
        Path(f"{key}-cert.pub").rename(moved)
        assert "was not let in" in refusal(server, private_key_file=str(key)).message
        named = server.args(f"CertificateFile={moved}")
        assert who(server, private_key_file=str(key), ssh_common_args=named) == "root"
        add(agent, key)
        key.rename(tmp_path / "away")
        held = with_agent(server, agent, f"CertificateFile={moved}")
        assert who(server, private_key_file=None, ssh_common_args=held) == "root"


@pytest.mark.parametrize("kind", [("rsa", "-b", "2048"), ("ed25519",)])
def test_a_certificate_in_an_agent(folder: Path, tmp_path: Path, agent: str, kind: tuple[str, ...]) -> None:
    authority, key = keygen(folder / "authority"), keygen(tmp_path / "user", kind[0], "", *kind[1:])
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", "root", str(key) + ".pub"], check=True
    )
    add(agent, key)
    plain = tmp_path / "plain.pub"
    plain.write_text(Path(f"{key}.pub").read_text())
    Path(f"{key}-cert.pub").rename(tmp_path / "away-cert.pub")
    environment = {**os.environ, "SSH_AUTH_SOCK": agent}
    subprocess.run(["ssh-add", "-q", "-d", plain], env=environment, check=True, capture_output=True)
    listed = subprocess.run(
        ["ssh-add", "-l"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert listed.count("\n") == 1
    assert "CERT" in listed
    with running(folder, f"TrustedUserCAKeys {authority}.pub") as server:
        assert who(server, private_key_file=None, ssh_common_args=with_agent(server, agent)) == "root"


def test_passwords(server: Sshd, accounts: Accounts, tmp_path: Path) -> None:
    account = accounts.user("password", password=True)
    missing = str(tmp_path / "missing")
    common: dict[str, Any] = {"user": account.name, "private_key_file": missing}
    assert who(server, password=Secret(PASSWORD), **common) == account.name
    assert who(server, ConnectOptions(password=Secret(PASSWORD)), **common) == account.name
    error = refusal(server, password=Secret("wrong-pw"), **common)
    assert "the password" in error.message
    assert "wrong-pw" not in error.message + error.hint
    assert "ansible_user" in error.hint
    # Nobody is asked for a ssh password unasked: the error says how to give one.
    error = refusal(server, ConnectOptions(prompter=Person("x")), **common)
    assert "--ask-pass" in error.hint


def test_a_key_and_then_a_password(folder: Path, accounts: Accounts) -> None:
    account = accounts.user("password", password=True)
    steps = "AuthenticationMethods publickey,password"
    with running(folder, steps, "PasswordAuthentication yes", user=account.name) as server:
        assert who(server, password=Secret(PASSWORD)) == account.name
        assert "takes password" in refusal(server).hint


def test_the_inventorys_user_wins(server: Sshd) -> None:
    assert "nobody-here" in refusal(server, user="nobody-here").message
