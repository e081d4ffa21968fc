"""What a host is: its own machine, with nothing of ours on it but what it is meant to have."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import clusterkit
from clusterkit.sandbox import Bind, Sandbox, SandboxSpec, User
from tests.sandbox.naming import Make, unique

pytestmark = pytest.mark.hosts


@pytest.fixture(scope="module")
def pair(make: Make) -> Sandbox:
    return make(2, "pair")


def ssh(sandbox: Sandbox, host: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    """As a user with the generated configuration; nobody is there to answer a prompt."""
    return subprocess.run(
        ["ssh", "-F", str(sandbox.ssh_config), *options, host, command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_ssh_with_the_inventorys_options_asks_nothing_and_says_nothing(pair: Sandbox) -> None:
    common = next(
        line.partition("=")[2].strip("'")
        for line in pair.inventory.read_text().splitlines()
        if line.startswith("ansible_ssh_common_args")
    )
    argv = [
        "ssh",
        "-F",
        "none",
        "-i",
        str(pair.private_key),
        *shlex.split(common),
        f"root@{pair.addresses('node02')[0]}",
    ]
    done = subprocess.run(
        [*argv, "hostname; id -u"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "node02\n0\n", "")


def test_the_controllers_files_do_not_show_through(pair: Sandbox, state_home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    package = Path(clusterkit.__file__).parent
    absent = [
        package / "errors.py",
        state_home / "clusterkit",
        tmp_path / "secret",
        pair.inventory,
        pair.private_key,
    ]
    absent += [Path.home() / ".gitconfig", package.parent / "pyproject.toml", Path("/run/netns")]
    for path in absent:
        assert pair.sh("node01", ["test", "-e", str(path)]).returncode == 1, path
    # The interpreter that the hosts are meant to have may lie in one of them.
    bound = {Path(place).parts[2] for place in (sys.prefix, sys.base_prefix) if len(Path(place).parts) > 2}
    shown = set(pair.sh("node01", "ls /home /tmp /mnt /srv").stdout.split())
    assert shown - bound == {"/home:", "/mnt:", "/srv:", "/tmp:"}
    assert str(state_home) not in pair.sh("node01", "cat /proc/self/mountinfo /proc/1/cmdline").stdout


def test_clusterkit_is_not_importable_on_a_host(pair: Sandbox) -> None:
    done = pair.sh("node01", [sys.executable, "-c", "import clusterkit.errors"])
    assert "No module named 'clusterkit" in done.stderr


@pytest.mark.paddle
def test_the_interpreter_of_the_controller_imports_paddle_there(pair: Sandbox) -> None:
    done = pair.sh(
        "node01",
        [sys.executable, "-W", "ignore", "-c", "import paddle; print(paddle.__version__)"],
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_interpreter_cannot_be_written_to(pair: Sandbox) -> None:
    if sys.prefix.startswith("/usr"):
        pytest.skip("the interpreter is the system's")
    assert pair.sh("node01", ["touch", f"{sys.prefix}/x"]).returncode != 0


def test_sshd_has_its_defaults(pair: Sandbox) -> None:
    settings = pair.sh("node01", "sshd -T").stdout.splitlines()
    assert {"maxstartups 10:30:100", "maxsessions 10", "usepam no", "port 22"} <= set(settings)


def test_every_host_is_its_own_machine(pair: Sandbox) -> None:
    def values(host: str) -> list[str]:
        files = "/etc/machine-id /proc/sys/kernel/random/boot_id /etc/hostname"
        return pair.sh(
            host, f"cat {files}; readlink /proc/self/ns/net /proc/self/ns/pid /proc/self/ns/ipc"
        ).stdout.split()

    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    first, second = values("node01"), values("node02")
    assert len(first) == 6
    assert not set(first) & set(second)
    assert here not in first


def test_hosts_write_only_to_their_own_layer(pair: Sandbox) -> None:
    assert pair.sh("node01", "echo mine > /etc/clusterkit-test && mkdir /opt/clusterkit-test").returncode == 0
    assert pair.sh("node02", "ls /etc/clusterkit-test /opt/clusterkit-test").returncode != 0
    assert not Path("/etc/clusterkit-test").exists()


def test_hosts_reach_each_other_by_name(pair: Sandbox) -> None:
    code = "import socket; print(socket.create_connection(('node02', 22), timeout=5).recv(4))"
    assert pair.sh("node01", [sys.executable, "-c", code]).stdout == "b'SSH-'\n"


def test_a_terminal_is_the_hosts_own(pair: Sandbox) -> None:
    assert ssh(pair, "node01", "tty", "-tt").stdout.strip() == "/dev/pts/0"


def test_exit_codes_and_input_pass_through_sh(pair: Sandbox) -> None:
    done = pair.sh("node01", "read line; echo got $line; pwd; exit 7", stdin="word\n")
    assert (done.returncode, done.stdout) == (7, "got word\n/root\n")
    assert pair.sh("node01", ["sh", "-c", 'echo "$1"', "x", "a 'b' $c"]).stdout == "a 'b' $c\n"


def test_processes_are_listed_with_both_numbers(pair: Sandbox) -> None:
    done = ssh(pair, "node01", "CLUSTERKIT_TEST=1 setsid sleep 300 >/dev/null 2>&1 & echo $!")
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 10
    while not (found := [one for one in pair.processes("node01") if one.argv == ("sleep", "300")]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert found[0].environment["CLUSTERKIT_TEST"] == "1"
    assert pair.sh("node01", ["kill", str(found[0].host_pid)]).returncode == 0
    assert not [process for process in pair.processes("node02") if process.argv == ("sleep", "300")]
    assert pair.processes("node01")[0].host_pid == 1


def test_processes_of_a_container_on_the_host_are_listed(pair: Sandbox) -> None:
    script = "(unshare --pid --fork sleep 301 >/dev/null 2>&1 &); sleep 0.2"
    assert pair.sh("node02", script).returncode == 0
    found = [process for process in pair.processes("node02") if process.argv == ("sleep", "301")]
    assert len(found) == 1
    os.kill(found[0].pid, signal.SIGKILL)


def test_orphans_are_reaped(pair: Sandbox) -> None:
    pair.sh("node01", "(setsid true &) ; (setsid sh -c 'exit 3' &) ; sleep 0.1")
    states = pair.sh("node01", "ps -o stat= -A").stdout.split()
    assert not [state for state in states if state.startswith("Z")]


def test_a_second_network_is_the_training_network(make: Make) -> None:
    sandbox = make(2, "nets", networks=2)
    management, training = sandbox.addresses("node01")
    assert f"ansible_host={management}" in sandbox.inventory.read_text()
    assert f"node_ip={training}" in sandbox.inventory.read_text()
    shown = sandbox.sh("node01", "ip -4 -br address").stdout
    assert "eth1@" in shown.replace(" ", "")
    assert training in shown
    route = subprocess.run(
        ["ip", "route", "get", training], capture_output=True, text=True, check=False
    ).stdout
    assert "test-" not in route  # this machine has no address in the training network
    peer = sandbox.addresses("node02")[1]
    code = f"import socket; print(socket.create_connection(('{peer}', 22), timeout=5).recv(4))"
    assert sandbox.sh("node01", [sys.executable, "-c", code]).stdout == "b'SSH-'\n"


def test_users_passwords_shells_and_environment(make: Make) -> None:
    spec = SandboxSpec.of(
        3,
        name=unique("users"),
        user=User("alice", password="open sesame", sudo="password"),
        environment={"HTTP_PROXY": "http://10.0.0.1:3128", "PADDLE_NNODES": "1"},
        files={"/home/alice/.bashrc": "echo noise\n"},
        loopback_name=True,
    )
    spec = spec.with_host("node02", user=User("bob", shell="/bin/sh"), port=2222)
    spec = spec.with_host("node03", user=None, shell="/bin/sh", environment={})
    sandbox = make(3, spec=spec)
    first = ssh(sandbox, "node01", f"id -un; env; {sys.executable} -c 'print(40 + 2)'; sudo -n id -u")
    assert "noise\nalice\n" in first.stdout
    assert "HTTP_PROXY=http://10.0.0.1:3128\n" in first.stdout
    assert "PADDLE_NNODES=1\n" in first.stdout
    assert "42\n" in first.stdout
    assert first.returncode == 1
    assert "password is required" in first.stderr
    assert ssh(sandbox, "node01", "echo 'open sesame' | sudo -S -p '' id -u").stdout.endswith("\n0\n")
    assert ssh(sandbox, "node02", "sudo -n id -u; echo $SHELL").stdout == "0\n/bin/sh\n"
    assert ssh(sandbox, "node03", "id -un; echo $SHELL").stdout == "root\n/bin/sh\n"
    assert sandbox.sh("node01", "getent hosts node01").stdout.split()[0] == "127.0.1.1"
    known = sandbox.known_hosts.read_text()
    assert f"[{sandbox.addresses('node02')[0]}]:2222 ssh-ed25519" in known


def test_a_shared_home_is_one_directory(make: Make, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("of this machine")
    spec = SandboxSpec.of(
        2,
        name=unique("shared"),
        shared_home=True,
        user=User("alice"),
        binds=(Bind(str(tmp_path / "data"), "/data", True),),
    )
    sandbox = make(2, spec=spec)
    assert ssh(sandbox, "node01", "echo hello > ~/greeting").returncode == 0
    assert ssh(sandbox, "node02", "cat ~/greeting /data/x").stdout == "hello\nof this machine"
    assert ssh(sandbox, "node02", "sudo touch /data/y").returncode != 0
    sandbox.sh("node01", "touch /root/of-root")
    assert sandbox.sh("node02", "ls /root/of-root").returncode == 0


def test_a_host_behind_another_is_reached_through_it_only(make: Make) -> None:
    sandbox = make(3, spec=SandboxSpec.of(3, name=unique("bastion")).with_host("node03", behind="node01"))
    assert ssh(sandbox, "node03", "hostname").stdout == "node03\n"
    straight = ssh(sandbox, "node03", "hostname", "-o", "ProxyJump=none", "-o", "ConnectTimeout=1")
    assert straight.returncode == 255
    assert "timed out" in straight.stderr
    line = next(line for line in sandbox.inventory.read_text().splitlines() if line.startswith("node03"))
    assert "ProxyJump=node01" in line


def test_stand_in_gpus_are_on_the_path_of_a_login(make: Make) -> None:
    sandbox = make(1, "gpus", gpus=4)
    done = ssh(sandbox, "node01", "nvidia-smi --query-gpu=index,name --format=csv,noheader")
    assert len(done.stdout.splitlines()) == 4
    assert "stand-in" in done.stdout
    assert "no GPU" in done.stderr
    sandbox.sh("node01", "sed -i 's/550.90.07/535.1/' /etc/clusterkit-sandbox/gpus.json")
    assert (
        ssh(sandbox, "node01", "nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0").stdout
        == "535.1\n"
    )
    assert "nproc" not in sandbox.inventory.read_text()
