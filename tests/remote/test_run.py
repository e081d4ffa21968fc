"""Scripts on a real sshd: exact output, any login shell, time limits that reach the host."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from clusterkit.errors import HostTimeout, Unreachable
from clusterkit.remote import Connections, Remote
from tests.remote.accounts import Accounts
from tests.remote.sshd import Sshd

pytestmark = pytest.mark.hosts


@pytest.fixture
def remote(server: Sshd, connections: Connections) -> Remote:
    return connections.to(server.settings())


def test_status_and_both_outputs_are_exact(remote: Remote) -> None:
    result = remote.run("printf 'a\\n\\nb'; printf 'c' >&2; exit 3", timeout=10)
    assert (result.status, result.stdout, result.stderr) == (3, b"a\n\nb", b"c")
    assert remote.run("", timeout=10).ok


def test_any_bytes_travel_as_they_are(remote: Remote) -> None:
    result = remote.run("head -c 3000000 /dev/zero | tr '\\0' '\\377'; printf 'x\\0\\r\\n'", timeout=20)
    assert result.stdout == b"\xff" * 3_000_000 + b"x\0\r\n"


def test_a_long_script_has_no_limit_and_is_not_in_ps(remote: Remote) -> None:
    secret = "s3cr3t" * 10
    filler = f"# it's {'x' * 300_000}\n"
    result = remote.run(f"{filler}: {secret}\nps -eo args | grep -c '[s]3cr3ts3cr3t'; echo done", timeout=20)
    assert result.text == "0\ndone\n"


@pytest.mark.parametrize(
    "script",
    [
        'echo "it\'s" \'"quoted"\' \\$HOME',
        "-n 2>/dev/null || echo 'starts with a dash'",
        "cat; echo empty stdin",
    ],
)
def test_scripts_are_taken_as_written(remote: Remote, script: str) -> None:
    assert remote.run(script, timeout=10).ok


def test_a_syntax_error_is_the_scripts_own(remote: Remote) -> None:
    result = remote.run("if then", timeout=10)
    assert result.status != 0
    assert b"yntax" in result.stderr


def test_exit_traps_and_exec_work(remote: Remote) -> None:
    assert remote.run("trap 'echo bye' EXIT; echo hi; exit 4", timeout=10).stdout == b"hi\nbye\n"
    assert remote.run("exec sh -c 'echo execed; exit 5'", timeout=10).status == 5


def test_a_signal_is_128_and_its_number(remote: Remote) -> None:
    assert remote.run("sh -c 'kill -TERM $$'", timeout=10).status == 143
    assert remote.run("echo before; kill -KILL $$; sleep 1", timeout=10).status == 137


def test_a_background_child_does_not_hold_the_result_back(remote: Remote) -> None:
    begun = time.monotonic()
    result = remote.run("sleep 60 & echo started", timeout=90)
    assert result.stdout == b"started\n"
    assert time.monotonic() - begun < 30


def alive(pid: int) -> bool:
    """True if the process runs; one that nobody has collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_time_limit_ends_the_script_on_the_host(remote: Remote, folder: Path) -> None:
    marks = folder / "pids"
    folder.chmod(0o777)
    begun = time.monotonic()
    with pytest.raises(HostTimeout) as caught:
        remote.run(
            f"sleep 300 & echo $! >{marks}; trap '' TERM; sleep 301", timeout=1, doing="reading the facts"
        )
    assert time.monotonic() - begun < 60
    assert "reading the facts" in caught.value.message
    assert "1 s" in caught.value.message
    assert not alive(int(marks.read_text()))


def test_a_timeout_leaves_the_connection_usable(remote: Remote) -> None:
    with pytest.raises(HostTimeout):
        remote.run("sleep 60", timeout=0.5)
    assert remote.run("echo again", timeout=10).text == "again\n"


@pytest.mark.parametrize("shell", ["tcsh", "fish", "zsh", "bash", "dash"])
def test_every_login_shell_will_do(
    server: Sshd, connections: Connections, accounts: Accounts, shell: str
) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    account = accounts.user(shell, path)
    remote = connections.to(server.settings(user=account.name))
    result = remote.run("f() { printf '%s' \"$1\"; }; f 'a b'; echo err >&2; exit 7", timeout=20)
    assert (result.status, result.stdout, result.stderr) == (7, b"a b", b"err\n")
    stream = remote.open("cd / && exec cat", timeout=20)
    stream.send(b"\0\xff")
    assert stream.read(10, 10) == b"\0\xff"
    stream.close()


def test_noise_of_profiles_and_banners_is_dropped(
    server: Sshd, connections: Connections, accounts: Accounts
) -> None:
    account = accounts.user("noisy", shutil.which("bash") or "/bin/bash")
    # bash reads .bashrc for commands of sshd too; the logout file speaks when the shell ends.
    for name in (".bashrc", ".bash_profile", ".bash_logout"):
        (account.home / name).write_text("echo NOISE; echo NOISE >&2; printf 'no newline'\n")
    remote = connections.to(server.settings(user=account.name))
    result = remote.run("echo hello; echo oops >&2", timeout=20)
    assert (result.stdout, result.stderr) == (b"hello\n", b"oops\n")
    stream = remote.open("echo err >&2; exec echo hi", timeout=20)
    ended = stream.wait(10)
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"hi\n", b"err\n")
    stream.close()


def test_an_account_without_a_shell_is_said(
    server: Sshd, connections: Connections, accounts: Accounts
) -> None:
    account = accounts.user("nologin", shutil.which("nologin") or "/usr/sbin/nologin")
    with pytest.raises(Unreachable) as caught:
        connections.to(server.settings(user=account.name)).run("true", timeout=10)
    assert caught.value.stage == "shell"
    assert "not available" in caught.value.message
    assert "login shell" in caught.value.hint


def test_many_threads_share_one_connection(server: Sshd, connections: Connections) -> None:
    from clusterkit.remote import fan_out

    remote = connections.to(server.settings())
    before = server.log().count("Accepted publickey")
    # More at once than sshd's MaxSessions (10) allows: they wait for their turn.
    outcome = fan_out({str(n): n for n in range(16)}, lambda n: remote.run(f"echo {n}", timeout=30).text)
    assert {name: str(error) for name, error in outcome.bad.items()} == {}
    assert outcome.good == {str(n): f"{n}\n" for n in range(16)}
    assert server.log().count("Accepted publickey") == before + 1


def test_close_and_use_again(server: Sshd, connections: Connections) -> None:
    remote = connections.to(server.settings())
    assert remote.run("echo 1", timeout=10).ok
    remote.close()
    assert remote.run("echo 2", timeout=10).ok
