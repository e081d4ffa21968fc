"""ansible_connection=local: the same interface without ssh."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clusterkit.errors import HostTimeout, Unreachable
from clusterkit.inventory.model import Settings
from clusterkit.remote import Connections, Remote, connect
from tests.remote.test_run import alive


@pytest.fixture
def remote(connections: Connections) -> Remote:
    return connections.to(Settings("here", "127.0.0.2", connection="local"))


def test_outputs_status_and_empty_stdin(remote: Remote) -> None:
    result = remote.run("cat; printf 'a\\0'; printf b >&2; exit 3", timeout=10)
    assert (result.status, result.stdout, result.stderr) == (3, b"a\0", b"b")
    assert remote.alias == "here"


def test_it_begins_at_home_as_over_ssh(remote: Remote) -> None:
    assert remote.run("pwd -P", timeout=10).text.strip() == str(Path.home().resolve())


def test_a_large_output_and_a_long_script(remote: Remote) -> None:
    filler = f"# {'x' * 300_000}\n"
    assert (
        len(remote.run(f"{filler}head -c 5000000 /dev/zero; head -c 200000 /dev/zero >&2", timeout=20).stdout)
        == 5_000_000
    )


def test_the_time_limit_ends_it(remote: Remote, tmp_path: Path) -> None:
    marks = tmp_path / "pid"
    with pytest.raises(HostTimeout, match=r"a nap did not end within 0\.5 s"):
        remote.run(f"sleep 300 & echo $! >{marks}; trap '' TERM; sleep 301", timeout=0.5, doing="a nap")
    assert not alive(int(marks.read_text()))


def test_a_background_child_does_not_hold_the_result_back(remote: Remote) -> None:
    begun = time.monotonic()
    assert remote.run("sleep 60 & echo hi", timeout=90).stdout == b"hi\n"
    assert time.monotonic() - begun < 30


def test_a_stream(remote: Remote) -> None:
    stream = remote.open("cd / && exec cat", timeout=10)
    stream.send(b"x" * 3)
    assert stream.read(10, 5) == b"xxx"
    with pytest.raises(HostTimeout):
        stream.read(10, 0.1)
    stream.finish()
    assert (stream.read(10, 5), stream.wait(5).status) == (b"", 0)
    stream.close()


def test_sending_to_a_program_that_has_ended(remote: Remote) -> None:
    stream = remote.open("exec true", timeout=10)
    stream.wait(5)
    with pytest.raises(Unreachable):
        stream.send(bytes(1 << 20))
    stream.close()


def test_a_signal(remote: Remote) -> None:
    stream = remote.open("exec sh -c 'kill -KILL $$'", timeout=10)
    assert stream.wait(5).status == 137
    stream.close()


def test_closing_leaves_it_running(remote: Remote, tmp_path: Path) -> None:
    marks = tmp_path / "pid"
    stream = remote.open(f"echo $$ >{marks}; exec sleep 20", timeout=10)
    end = time.monotonic() + 5
    while not (marks.exists() and marks.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    stream.close()
    pid = int(marks.read_text())
    assert alive(pid)
    os.kill(pid, 15)


@pytest.mark.skipif(os.geteuid() != 0, reason="as root sudo is not needed, which is what this shows")
def test_root_needs_no_sudo(remote: Remote) -> None:
    assert remote.run("id -u", timeout=10, sudo=True).text == "0\n"


def test_connect_makes_one_that_closes_itself() -> None:
    remote = connect(Settings("here", "127.0.0.2", connection="local"))
    assert remote.run("echo hi", timeout=10).text == "hi\n"
    remote.close()


def test_neither_fabric_nor_paramiko_is_imported_for_it() -> None:
    code = (
        "import sys; from clusterkit.inventory.model import Settings; from clusterkit.remote import connect;"
        "connect(Settings('a', 'b', connection='local')).run('true', timeout=9);"
        "sys.exit(bool({'fabric', 'paramiko'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
