"""Probes against this machine, where Python knows the same another way."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from clusterkit.facts import Facts, Probe, ProbeFailed, gather
from clusterkit.inventory.model import PortRange, Settings
from clusterkit.probes import DISK, ENVIRONMENT, HOST, KERNEL, LISTENING, NETWORK, PYTHON, RUNS
from tests.facts.shells import Shell

T = TypeVar("T")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hosts are Linux")


def ask(shell: Shell, probe: Probe[T], **fields: Any) -> T:
    settings = Settings("here", "127.0.0.1", connection="local", **fields)
    return gather(shell, settings, [probe])[probe]


def without(shell: Shell, tmp_path: Path, *names: str, **instead: str) -> Shell:
    """The same shell with a PATH where these programs fail, as if they were not there."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in names:
        (tools / name).write_text("#!/bin/sh\nexit 127\n")
    for name, script in instead.items():
        (tools / name).write_text(script)
    for tool in tools.iterdir():
        tool.chmod(0o755)
    return Shell(shell.command, {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})


def test_host(shell: Shell) -> None:
    host = ask(shell, HOST)
    assert (host.uid, host.gid) == (os.getuid(), os.getgid())
    assert (host.hostname, host.kernel, host.architecture) == (
        socket.gethostname(),
        platform.release(),
        platform.machine(),
    )
    assert host.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_environment_survives_newlines(shell: Shell) -> None:
    odd = {"ODD": "a\nPADDLE_NNODES=1\n\n=b", "EMPTY": "", "QUOTES": "'\"$HOME`"}
    found = ask(Shell(shell.command, {**os.environ, **odd}), ENVIRONMENT).variables
    assert {name: found.get(name) for name in (*odd, "PADDLE_NNODES")} == {**odd, "PADDLE_NNODES": None}
    assert found["PATH"] == os.environ["PATH"]


def test_kernel(shell: Shell) -> None:
    kernel = ask(shell, KERNEL)
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert kernel.ephemeral == PortRange(int(first), int(last))
    assert kernel.first_unprivileged_port == int(
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()
    )
    assert kernel.cpus == len(os.sched_getaffinity(0))
    shm = os.statvfs("/dev/shm")
    assert kernel.shm_size == shm.f_blocks * shm.f_frsize
    assert kernel.memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_kernel_files_are_read_not_guessed(shell: Shell) -> None:
    """A shell's `read` gets one digit of such a file; the parser's defaults would hide that."""
    raw = Probe("raw", KERNEL.text(Settings("here", "127.0.0.1")), lambda output: output.pairs())
    found = ask(shell, raw)
    assert found["ephemeral"] == Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().strip()
    assert found["unprivileged"] == Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text().strip()


def test_network_with_and_without_iproute2(shell: Shell, tmp_path: Path) -> None:
    """Other tests' interfaces come and go meanwhile: what is there before and after has to be found."""
    before = ask(shell, NETWORK)
    bare = ask(without(shell, tmp_path, "ip"), NETWORK)
    found = ask(shell, NETWORK)
    assert found.owner("127.0.0.1") is not None
    assert found.owner("127.0.0.3") is not None
    assert found.owner("203.0.113.77") is None
    assert (
        {"lo"}
        <= set(before.interfaces) & {name for _, name in socket.if_nameindex()}
        <= set(found.interfaces)
    )
    if "busybox" not in shell.command[0]:  # which finds its own `ip` before PATH
        stayed = set(map(str, before.addresses)) & set(map(str, found.addresses))
        assert "127.0.0.1/8 (lo)" in stayed
        assert stayed <= set(map(str, bare.addresses))


def test_listening(shell: Shell) -> None:
    with socket.socket() as listener, socket.socket() as bound:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        bound.bind(("127.0.0.1", 0))
        found = ask(shell, LISTENING)
        port = listener.getsockname()[1]
        assert found.ports[port] == os.getuid()
        assert bound.getsockname()[1] not in found.ports
        if shutil.which("ss"):
            assert f"pid {os.getpid()}" in found.described(port)
        assert found.described(port)


def test_disk_finds_the_nearest_directory(shell: Shell, tmp_path: Path) -> None:
    wanted = tmp_path / "it's new" / "a b"
    disk = ask(shell, DISK, remote_dir=str(wanted))
    assert (disk.path, disk.exists, disk.is_directory, disk.writable) == (str(tmp_path), False, True, True)
    stat = os.statvfs(tmp_path)
    assert disk.free == pytest.approx(stat.f_bavail * stat.f_frsize, rel=0.05)
    assert disk.type
    wanted.parent.mkdir()
    wanted.write_text("")
    disk = ask(shell, DISK, remote_dir=str(wanted))
    assert (disk.path, disk.exists, disk.is_directory) == (str(wanted), True, False)


def test_disk_where_the_user_may_not_enter(shell: Shell) -> None:
    """As with a home of somebody else's: what lies below cannot be seen, its disk can."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0)
        user = ("setpriv", "--reuid=65534", "--clear-groups") if os.geteuid() == 0 else ()
        disk = ask(Shell((*user, *shell.command)), DISK, remote_dir=f"{folder}/runs")
        assert (disk.path, disk.is_directory, disk.writable) == (folder, True, False)
        assert disk.free > 0
        Path(folder).chmod(0o700)


def test_a_disk_that_does_not_answer_says_so_itself(shell: Shell, tmp_path: Path) -> None:
    """A stale handle of NFS makes `df` fail; its own words are the reason."""
    (tmp_path / "df").write_text("#!/bin/sh\necho 'df: /data: Stale file handle' >&2\nexit 1\n")
    (tmp_path / "df").chmod(0o755)
    ill = Shell(shell.command, {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    with pytest.raises(ProbeFailed, match="df: /data: Stale file handle"):
        ask(ill, DISK, remote_dir="/data/runs")


@pytest.mark.parametrize("written", ["~/runs", "runs", "~"])
def test_remote_dir_below_the_home(shell: Shell, tmp_path: Path, written: str) -> None:
    (tmp_path / "runs").mkdir()
    home = Shell(shell.command, {**os.environ, "HOME": str(tmp_path)})
    assert ask(home, DISK, remote_dir=written).path == str(
        tmp_path / "runs" if "runs" in written else tmp_path
    )


def test_disk_behind_a_link(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    disk = ask(shell, DISK, remote_dir=str(tmp_path / "link" / "self-made"))
    assert (disk.path, disk.type) == ("/proc", "proc")


def test_python(shell: Shell) -> None:
    python = ask(shell, PYTHON, python=sys.executable, node_ip="203.0.113.77")
    assert (python.path, python.version) == (sys.executable, sys.version_info[:3])
    assert python.binds["127.0.0.1"] == ""
    assert python.binds["203.0.113.77"] == "Cannot assign requested address"


def test_paddle_is_read_from_its_metadata_alone(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "paddlepaddle_gpu-2.6.2.post118.dist-info").mkdir()
    (tmp_path / "paddle" / "version").mkdir(parents=True)
    (tmp_path / "paddle" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "paddle" / "version" / "__init__.py").write_text(
        "cuda_version = '11.8'\nnccl_version='21805'\n"
    )
    there = Shell(shell.command, {**os.environ, "PYTHONPATH": str(tmp_path)})
    paddle = ask(there, PYTHON, python=sys.executable).paddle
    assert paddle is not None
    assert (paddle.distribution, paddle.version, paddle.cuda, paddle.nccl) == (
        "paddlepaddle-gpu",
        "2.6.2.post118",
        "11.8",
        "21805",
    )
    assert paddle.for_gpu


def test_an_interpreter_with_odd_characters_in_its_path(shell: Shell, tmp_path: Path) -> None:
    odd = tmp_path / "it's $HOME"
    odd.mkdir()
    (odd / "python").symlink_to(sys.executable)
    assert ask(shell, PYTHON, python=str(odd / "python")).path == str(odd / "python")


def test_no_interpreter(shell: Shell) -> None:
    settings = Settings("here", "127.0.0.1", python="no-such-python")
    failed = gather(shell, settings, [PYTHON]).failure(PYTHON)
    assert failed is not None
    assert (failed.status, failed.message) == (127, "the interpreter: no-such-python: not found")


@pytest.fixture
def marked() -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process of a live run (with its supervisor's socket) and one of a run that is over."""
    path = {"PATH": os.environ["PATH"]}
    live, over = f"live-{os.getpid()}", f"over-{os.getpid()}"
    supervisor = socket.socket(socket.AF_UNIX)
    supervisor.bind(f"\0clusterkit/{live}/0/30100-30120")
    supervisor.listen()
    sleep = [sys.executable, "-c", "import time; time.sleep(60)", "two\nlines"]
    started = [
        subprocess.Popen(
            ["sleep", "60"], env={**path, "CLUSTERKIT_RUN_ID": live, "FLAGS_selected_gpus": "3"}
        ),
        subprocess.Popen(sleep, env={**path, "CLUSTERKIT_RUN_ID": over, "X": f"\nCLUSTERKIT_RUN_ID={live}"}),
    ]
    try:
        yield started
    finally:
        supervisor.close()
        for process in started:
            process.kill()
            process.wait()


def seen(found: Any) -> tuple[list[Any], list[Any]]:
    mine = str(os.getpid())
    live = [(run.node_rank, run.ports, run.devices) for run in found.live if run.run_id.endswith(mine)]
    left = [(one.pid, one.command) for one in found.left_over if one.run_id.endswith(mine)]
    return live, left


EXPECTED_LIVE = [(0, PortRange(30100, 30120), frozenset({3}))]


def test_live_runs_and_what_is_left_over(shell: Shell, marked: list[subprocess.Popen[bytes]]) -> None:
    live, left = seen(ask(shell, RUNS))
    assert live == EXPECTED_LIVE
    command = f"{sys.executable} -c import time; time.sleep(60) two lines"
    assert left == [(marked[1].pid, command)]


def test_the_same_with_a_grep_that_knows_no_z(
    shell: Shell, marked: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    grep = f'#!/bin/sh\ncase $1 in -*z*) exit 2 ;; esac\nexec {shutil.which("grep")} "$@"\n'
    live, left = seen(ask(without(shell, tmp_path, grep=grep), RUNS))
    assert live == EXPECTED_LIVE
    assert [pid for pid, _ in left] == [marked[1].pid]


def test_a_process_of_another_network_namespace_is_not_ours(shell: Shell) -> None:
    """As those of a sandbox host on this machine, whose supervisors' sockets cannot be seen from here."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("a network namespace needs root and unshare")
    marks = {"PATH": os.environ["PATH"], "CLUSTERKIT_RUN_ID": f"apart-{os.getpid()}"}
    with (
        subprocess.Popen(["sleep", "60"], env=marks) as here,
        subprocess.Popen([unshare, "--net", "sleep", "60"], env=marks) as there,
    ):
        try:
            _until_command(there.pid, b"sleep")
            live, left = seen(ask(shell, RUNS))
        finally:
            here.kill()
            there.kill()
    assert (live, [pid for pid, _ in left]) == ([], [here.pid])


def _until_command(pid: int, name: bytes) -> None:
    """Wait until unshare has become the command, in its own namespace."""
    end = time.monotonic() + 10
    while not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(name + b"\0"):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_facts_never_show_the_environment(shell: Shell) -> None:
    secret = Shell(shell.command, {**os.environ, "TOKEN": "s3cret"})
    settings = Settings("here", "127.0.0.1")
    facts: Facts = gather(secret, settings, [ENVIRONMENT])
    assert facts[ENVIRONMENT].variables["TOKEN"] == "s3cret"
    assert "s3cret" not in f"{facts!r} {facts[ENVIRONMENT]!r}"
