"""Logins as they are on machines that grew: noisy, of any shell, behind others, one home, full disks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import HostSpec, SandboxSpec, User
from tests.e2e.cluster import Cluster, Finished
from tests.e2e.conftest import used_once
from tests.e2e.terminal import on_terminal

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]

NOISE = "echo noise on stdout\necho noise on stderr >&2\nprintf 'noise without an end'\n"
PASSWORD = "pa ss'w\"d"
ELSEWHERE = "/srv/runs of ml"
JOB = ("--limit", "all:!rekeyed")


def odd_hosts() -> tuple[HostSpec, ...]:
    """Each with another oddity; only `rekeyed` takes no part in jobs."""
    return (
        HostSpec(
            "bashful",
            nproc=1,
            files={
                "/root/.bashrc": NOISE,
                "/etc/motd": "noise of the day\n",
                "/etc/banner": "*** noise: authorised use only ***\n",
            },
            sshd_config=("Banner /etc/banner", "PrintMotd yes"),
        ),
        HostSpec(
            "tcshy",
            nproc=1,
            port=2222,
            shell="/usr/bin/tcsh",
            files={"/root/.tcshrc": "echo noise\nbiff y\n"},
        ),
        HostSpec(
            "fishy",
            nproc=1,
            user=User("fi", shell="/usr/bin/fish", sudo="none"),
            files={"/home/fi/.config/fish/config.fish": "echo noise\necho noise >&2\n"},
        ),
        HostSpec(
            "zshy",
            nproc=1,
            user=User("ml", password=PASSWORD, sudo="password", shell="/usr/bin/zsh"),
            files={"/home/ml/.zshenv": NOISE},
            variables={"remote_dir": ELSEWHERE},
        ),
        HostSpec("rekeyed", nproc=1),
    )


@pytest.fixture
def odd(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """The odd hosts; zshy's user has its directory elsewhere."""
    for cluster in used_once(
        make_sandbox(SandboxSpec(odd_hosts(), name="e2e-odd", python=(sys.executable,))), tmp_path
    ):
        zshy = ["sh", "-c", f"mkdir -p '{ELSEWHERE}' && chown ml '{ELSEWHERE}'"]
        assert cluster.sandbox.sh("zshy", zshy).returncode == 0
        yield cluster


def test_one_job_on_hosts_of_every_kind(odd: Cluster, tmp_path: Path) -> None:
    finished = odd.launch(*JOB, "odd_bytes.py")
    assert finished.code == 0, finished.err
    assert "noise" not in finished.out + finished.err
    assert odd.run("logs", "--output", str(tmp_path / "logs")).code == 0
    run_id = odd.status()["run_id"]
    homes = {"bashful": "/root", "tcshy": "/root", "fishy": "/home/fi"}
    places = {host: f"{home}/.clusterkit/{host}" for host, home in homes.items()}
    places["zshy"] = f"{ELSEWHERE}/zshy"
    for rank, (host, place) in enumerate(places.items()):
        there = odd.sandbox.read(host, f"{place}/runs/{run_id}/logs/workerlog.0")
        assert there.startswith(b"rank %d of 4\ncaf\xe9 \xff\xfe\x00 10%%\r20%%\r\n" % rank)
        assert (tmp_path / "logs" / f"rank-{rank:04d}.log").read_bytes() == there
        modes = odd.sandbox.sh(host, ["stat", "-c", "%a %U", place, f"{place}/runs/{run_id}"]).stdout
        user = {"fishy": "fi", "zshy": "ml"}.get(host, "root")
        assert modes == f"700 {user}\n" * 2
    assert odd.gone()


def test_a_noisy_login_adds_nothing_to_an_answer(odd: Cluster) -> None:
    finished = odd.run("exec", *JOB, "INVENTORY", "--", "printf answer; printf word >&2; exit 3")
    assert finished.code == 1
    assert finished.out == "bashful,tcshy,fishy,zshy (4, exit 3)\nanswerword\n"
    assert finished.err == ""


def edited(cluster: Cluster, change: Callable[[str], str]) -> str:
    """The sandbox's inventory with a change, as a new file."""
    path = cluster.folder.parent / "inventory.ini"
    path.write_text(change(cluster.sandbox.inventory.read_text()))
    return str(path)


def become(cluster: Cluster, password: str | None, *options: str) -> Finished:
    """`exec --become` on the hosts whose user is not root, with that password in the inventory."""

    def change(text: str) -> str:
        escaped = (password or "").replace("\\", "\\\\").replace('"', '\\"')
        return text + (f'ansible_become_password="{escaped}"\n' if password else "")

    return cluster.run(
        "exec", "--become", "--limit", "fishy,zshy", *options, edited(cluster, change), "--", "id", "-un"
    )


def test_sudo_with_a_password(odd: Cluster) -> None:
    right = become(odd, PASSWORD, "--limit", "zshy")
    assert (right.code, right.out, right.err) == (0, "zshy (1)\nroot\n", "")
    none = become(odd, None)
    assert none.code == 4
    address = odd.sandbox.addresses("zshy")[0]
    assert none.err.splitlines()[-2:] == [
        f"zshy ({address}:22): sudo wants ml's password",
        "  → pass --ask-become-pass, or set ansible_become_password",
    ]
    wrong = become(odd, "not this")
    assert wrong.code == 4
    assert "fishy,zshy: the sudo password was wrong" in wrong.err.splitlines()
    assert "not this" not in wrong.out + wrong.err


def test_a_sudo_password_is_asked_for_once(odd: Cluster) -> None:
    command = ("exec", "--become", "-K", "--limit", "bashful,zshy", "INVENTORY", "--", "id -un")
    screen = on_terminal(odd, *command, answers={"sudo password:": PASSWORD})
    assert screen.code == 0, screen.text
    assert "bashful,zshy (2)" in screen.lines
    assert PASSWORD not in screen.text
    blind = odd.run(*command)
    assert blind.code == 2
    assert "there is no terminal to ask for a password on" in blind.err


def test_a_host_key_is_learnt_once_and_held_to(odd: Cluster, tmp_path: Path) -> None:
    known = tmp_path / "known hosts"
    inventory = edited(
        odd,
        lambda text: re.sub(r"UserKnownHostsFile=[^\"]*\" -o [^']*", f'UserKnownHostsFile={known}"', text),
    )
    address = odd.sandbox.addresses("rekeyed")[0]

    def connect(*options: str) -> Finished:
        return odd.run("exec", *options, "--limit", "rekeyed", inventory, "--", "true")

    strict = connect("--strict-host-keys")
    assert strict.code == 4
    assert "is not in known_hosts" in strict.err
    assert not known.exists()
    first = connect()
    assert first.code == 0, first.err
    (shown,) = re.findall(r"rekeyed: trusted a new host key for (\S+): ssh-ed25519 (SHA256:\S+)\n", first.err)
    assert shown[0] == address
    second = connect()
    assert (second.code, second.err) == (0, "")
    assert connect("--strict-host-keys").code == 0
    odd.sandbox.new_host_key("rekeyed")
    changed = connect()
    assert changed.code == 4
    message, hint = changed.err.splitlines()
    assert message.startswith(f"rekeyed ({address}:22): the host key has changed: {known}:1 has {shown[1]} ")
    fingerprints = re.findall("SHA256:[A-Za-z0-9+/]+", message)
    assert len(set(fingerprints)) == 2
    clear = re.search(r"ssh-keygen -R .*?(?=; if not)", hint)
    assert clear, hint
    subprocess.run(clear.group(0), shell=True, check=True, capture_output=True)
    again = connect()
    assert again.code == 0, again.err
    assert fingerprints[1] in again.err
    known.write_text(known.read_text() + "@revoked * " + odd.sandbox.sh("rekeyed", _PUBLIC_KEY).stdout)
    revoked = connect()
    assert revoked.code == 4
    assert f"its host key {fingerprints[1]} is marked @revoked in {known}:2" in revoked.err


_PUBLIC_KEY = ["cat", "/etc/ssh/ssh_host_ed25519_key.pub"]


def mount(cluster: Cluster, size: str, option: str = "rw") -> None:
    """zshy's remote_dir is an empty disk of that size."""
    script = f"""
        umount '{ELSEWHERE}' 2>/dev/null
        mount -t tmpfs -o mode=700,uid=$(id -u ml),size={size},{option} tmpfs '{ELSEWHERE}'
    """
    done = cluster.sandbox.sh("zshy", script)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def disk(odd: Cluster) -> Iterator[Callable[..., None]]:
    """Mounts another disk at zshy's remote_dir; it is gone after the test."""
    yield lambda *arguments: mount(odd, *arguments)
    odd.finish()
    odd.sandbox.sh("zshy", f"umount -l '{ELSEWHERE}'")


TWO = ("--limit", "bashful,zshy")


def test_a_disk_that_will_not_do_is_found_before_anything_starts(
    odd: Cluster, disk: Callable[..., None]
) -> None:
    disk("1m")
    small = odd.launch(*TWO, "drill.py", "1")
    assert small.code == 1
    assert "zshy: disk space failed: only 0.0 GiB are free on /srv/runs of ml" in small.err
    disk("900m", "ro")
    sealed = odd.launch(*TWO, "drill.py", "1")
    assert sealed.code == 1
    assert "zshy: remote_dir failed: /srv/runs of ml cannot be written" in sealed.err
    for finished in (small, sealed):
        assert "nothing was started" in finished.last_line or "nothing was started" in finished.err
        assert odd.run("status").code == 2, "a run was recorded"


def test_a_disk_that_fills_while_staging(odd: Cluster, disk: Callable[..., None]) -> None:
    disk("1m")
    (odd.folder / "big.bin").write_bytes(b"x" * 3_000_000)
    full = odd.launch(*TWO, "--no-preflight", "drill.py", "1")
    assert full.code == 1
    assert re.search(
        "zshy: staging failed: /srv/runs of ml/.*: no space left: 30.* bytes are to come", full.err
    )
    disk("20k")
    tiny = odd.launch(*TWO, "--no-preflight", "drill.py", "1")
    assert tiny.code == 1
    assert re.search("zshy: staging failed: /srv/runs of ml/.*: No space left on device", tiny.err)
    disk("900m", "ro")
    sealed = odd.launch(*TWO, "--no-preflight", "drill.py", "1")
    assert sealed.code == 1
    assert re.search("zshy: staging failed: /srv/runs of ml/.*: Read-only file system", sealed.err)
    for finished in (full, tiny, sealed):
        assert "Traceback" not in finished.err
        assert "error: staging, so nothing was started: failed on 1 host" in finished.err
    runs = odd.sandbox.sh("bashful", "ls -A /root/.clusterkit/bashful/runs").stdout.split()
    failed = {record.name for record in (odd.state / "clusterkit" / "runs").iterdir()}
    assert not failed & set(runs), "what was staged on the others is gone"


def test_a_disk_that_fills_with_the_log(odd: Cluster, disk: Callable[..., None]) -> None:
    disk("1m")
    finished = odd.launch(*TWO, "--no-preflight", "flood.py", "1", "5")
    assert finished.code == 1
    assert finished.last_line.endswith("failed (exit 1): rank 1 on zshy exited with 1")
    assert re.search(r"  clusterkit: the disk of /srv/runs of ml/\S+ is full", finished.err), finished.err
    log = odd.run("logs", "--rank", "1")
    assert log.out.startswith("rank 1 begins\n"), (log.err, finished.out[:300], finished.err)
    assert len(log.out) > 500_000
    assert odd.gone()


@pytest.fixture
def behind(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """Twelve hosts behind a thirteenth, with one home directory for all."""
    hidden = tuple(HostSpec(f"node{number:02d}", nproc=1, behind="gate") for number in range(1, 13))
    spec = SandboxSpec(
        (HostSpec("gate"), *hidden), name="e2e-behind", shared_home=True, python=(sys.executable,)
    )
    yield from used_once(make_sandbox(spec), tmp_path)


def test_twelve_hosts_behind_a_bastion_with_one_home(behind: Cluster, tmp_path: Path) -> None:
    everybody = behind.run("exec", "--limit", "all:!gate", "INVENTORY", "--", "echo here")
    # Where it takes some seconds, who is waited for is shown; nothing else is said.
    said = [line for line in everybody.err.splitlines() if not line.startswith("waiting for node")]
    assert (everybody.code, everybody.out, said) == (0, "node[01-12] (12)\nhere\n", [])
    logins = behind.sandbox.sh("gate", ["grep", "-c", "^Accepted", "/var/log/sshd.log"]).stdout
    assert int(logins) == 1, "one connection to the bastion carries all"
    finished = behind.launch("--limit", "node01,node02,node03", "drill.py", "1")
    assert finished.code == 0, finished.err
    logs = tmp_path / "logs"
    assert behind.run("logs", "--output", str(logs)).code == 0
    run_id = behind.status()["run_id"]
    for rank in range(3):
        host = f"node0{rank + 1}"
        home = f"/root/.clusterkit/{host}"
        there = behind.sandbox.read(host, f"{home}/runs/{run_id}/logs/workerlog.0")
        assert there.startswith(b"rank %d of 3\n" % rank)
        assert (logs / f"rank-{rank:04d}.log").read_bytes() == there
        code = behind.sandbox.sh(host, f"ls {home}/code/*/drill.py").stdout
        assert code.count("\n") == 1
    # One home: each host sees the others' directories, and used its own.
    assert behind.sandbox.sh("node01", ["ls", "/root/.clusterkit"]).stdout == "node01\nnode02\nnode03\n"
    assert behind.gone()
