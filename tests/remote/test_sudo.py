"""sudo on a real host: with and without a password, and each way of being refused, in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clusterkit.errors import HostTimeout, Unreachable
from clusterkit.inventory.model import Secret
from clusterkit.remote import Connections, ConnectOptions, Remote
from tests.remote.accounts import PASSWORD, Account, Accounts
from tests.remote.sshd import Sshd
from tests.remote.test_run import alive

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(shutil.which("sudo") is None, reason="sudo is not installed: apt-get install sudo"),
]


@pytest.fixture
def free(accounts: Accounts) -> Account:
    return accounts.user("free", sudo="(ALL) NOPASSWD: ALL")


@pytest.fixture
def asked(accounts: Accounts) -> Account:
    return accounts.user("asked", password=True, sudo="(ALL) ALL")


def refusal(remote: Remote) -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        remote.run("true", timeout=15, sudo=True)
    assert caught.value.stage == "sudo"
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_without_a_password(server: Sshd, connections: Connections, free: Account) -> None:
    remote = connections.to(server.settings(user=free.name))
    result = remote.run("id -un; echo $HOME; cat; printf err >&2; exit 5", timeout=15, sudo=True)
    assert (result.status, result.stdout, result.stderr) == (5, b"root\n/root\n", b"err")
    assert remote.run("id -un", timeout=15).text.strip() == free.name


def test_with_a_password_that_is_nowhere_to_be_seen(
    server: Sshd, connections: Connections, asked: Account
) -> None:
    remote = connections.to(server.settings(user=asked.name, become_password=Secret(PASSWORD)))
    result = remote.run("id -un; echo done; ps -eo args; env; cat", timeout=15, sudo=True)
    assert result.text.startswith("root\ndone\n")
    assert PASSWORD not in result.text
    assert "correct horse" not in (result.stdout + result.stderr).decode()


def test_a_stream_under_sudo(server: Sshd, asked: Account) -> None:
    with Connections(ConnectOptions(become_password=Secret(PASSWORD))) as connections:
        remote = connections.to(server.settings(user=asked.name))
        stream = remote.open("id -un; exec cat", timeout=15, sudo=True)
        assert stream.read(5, 10) == b"root\n"
        stream.send(b"\0bytes")
        assert stream.read(10, 10) == b"\0bytes"
        stream.finish()
        assert stream.wait(5).status == 0
        stream.close()


def test_another_user(server: Sshd, connections: Connections, free: Account, accounts: Accounts) -> None:
    other = accounts.user("plain")
    remote = connections.to(server.settings(user=free.name, become_user=other.name))
    assert remote.run("id -un", timeout=15, sudo=True).text.strip() == other.name


def test_root_needs_no_sudo(server: Sshd, connections: Connections, folder: Path) -> None:
    remote = connections.to(server.settings(user="root"))
    assert remote.run("ps -o args= -p $PPID; id -un", timeout=15, sudo=True).text.count("sudo") == 0


def test_a_missing_password(server: Sshd, connections: Connections, asked: Account) -> None:
    error = refusal(connections.to(server.settings(user=asked.name)))
    assert asked.name in error.message
    assert "--ask-become-pass" in error.hint


def test_a_wrong_password(server: Sshd, connections: Connections, asked: Account) -> None:
    error = refusal(connections.to(server.settings(user=asked.name, become_password=Secret("not it"))))
    assert "the sudo password was wrong" in error.message
    assert "not it" not in error.message


def test_not_in_sudoers(server: Sshd, connections: Connections, accounts: Accounts) -> None:
    account = accounts.user("password", password=True)
    error = refusal(connections.to(server.settings(user=account.name, become_password=Secret(PASSWORD))))
    assert "cannot become root" in error.message
    assert "sudoers" in error.message
    assert "sudo -l" in error.hint


def test_a_terminal_is_required(server: Sshd, connections: Connections, accounts: Accounts) -> None:
    account = accounts.user("tty", sudo="(ALL) NOPASSWD: ALL")
    accounts.sudoers(f"Defaults:{account.name} requiretty")
    error = refusal(connections.to(server.settings(user=account.name)))
    assert "only on a terminal" in error.message
    assert "!requiretty" in error.hint


def test_no_sudo_on_the_host(server: Sshd, connections: Connections, accounts: Accounts) -> None:
    account = accounts.user("bare", shutil.which("bash") or "/bin/bash")
    (account.home / ".bashrc").write_text(
        f"mkdir -p {account.home}/bin; ln -sf $(command -v sh) $(command -v id) ~/bin\n"
    )
    remote = connections.to(server.settings(user=account.name))
    remote.run("true", timeout=10)
    (account.home / ".bashrc").write_text(f"export PATH={account.home}/bin\n")
    error = refusal(remote)
    assert "sudo is not there" in error.message
    assert "ansible_user=root" in error.hint


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_the_time_limit_ends_what_runs_as_root(
    server: Sshd, connections: Connections, free: Account, asked: Account, password: str | None
) -> None:
    user = asked if password else free
    remote = connections.to(
        server.settings(user=user.name, become_password=Secret(password) if password else None)
    )
    stream = remote.open("exec sleep 0.01", timeout=15)
    stream.close()
    marks = f"/tmp/clusterkit-test-{user.name}"
    with pytest.raises(HostTimeout):
        remote.run(f"sleep 300 & echo $! >{marks}; sleep 301", timeout=1.5, sudo=True)
    pid = int(Path(marks).read_text())
    Path(marks).unlink()
    assert not alive(pid)
