"""Start one host's init, and wait until its sshd answers."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from clusterkit.errors import ClusterkitError, HostTimeout
from clusterkit.sandbox import processes
from clusterkit.sandbox.processes import Identity
from clusterkit.sandbox.requirements import path_of
from clusterkit.sandbox.rootfs import SSHD_CONFIG, SSHD_LOG, HostPlan

INIT = Path(__file__).with_name("init.py")
# argv[0] of every init. With the sandbox's mark at the end, this is how a crashed one is found again.
MARK = "clusterkit-sandbox-init"
SSHD_LIMIT = 20.0


def start_init(plan: HostPlan, directory: Path) -> Identity:
    """The host runs and its sshd has been started."""
    done = subprocess.run(
        [MARK, "-I", "-S", "-B", str(INIT), plan.hostname, mark_of(directory)],
        executable=sys.executable,
        input=json.dumps(plan.to_json()),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        close_fds=False,  # as in `commands.run`; init lets go of the lock when it detaches
    )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        said = {"error": lines[-1]}
    if "error" in said:
        raise ClusterkitError(
            f"{plan.hostname} did not start: {said['error']}",
            "a sandbox needs CAP_SYS_ADMIN and CAP_NET_ADMIN; inside a container run that one privileged",
        )
    found = processes.identity(said["pid"])
    if found is None:
        raise ClusterkitError(f"{plan.hostname} ended at once after its start")
    return found


def mark_of(directory: Path) -> str:
    """The sandbox's name and a digest of its state directory: a host's `ps` does not tell where that is."""
    return f"{directory.name}@{hashlib.sha256(str(directory).encode()).hexdigest()[:12]}"


def inits_of(directory: Path) -> tuple[Identity, ...]:
    """Every init of that sandbox that runs, whatever its state file says."""
    found = []
    for pid in processes.pids():
        argv = processes.argv(pid)
        if argv[:1] == (MARK,) and argv[-1] == mark_of(directory):
            one = processes.identity(pid)
            if one is not None:
                found.append(one)
    return tuple(found)


def sshd_of(init: Identity) -> Identity | None:
    """The listening sshd: the child of init whose title still has its configuration.

    Sessions become init's children too when their listener ends; their titles have a user's name.
    """
    for pid in processes.children(init.pid):
        if SSHD_CONFIG in " ".join(processes.argv(pid)):
            return processes.identity(pid)
    return None


def wait_for_sshd(name: str, address: str, port: int, init: Identity) -> None:
    """sshd has sent its banner to this machine; HostTimeout with the end of its log where it has not."""
    deadline = time.monotonic() + SSHD_LIMIT
    while time.monotonic() < deadline:
        if not processes.alive(init):
            raise ClusterkitError(f"{name} ended while sshd was starting")
        if _has_banner(address, port):
            return
        if not processes.children(init.pid):
            raise ClusterkitError(
                f"{name}: sshd ended at once{_log_end(init)}", "check the extra lines of sshd_config"
            )
        time.sleep(0.01)
    raise HostTimeout(
        name,
        f"{name}: sshd at {address}:{port} did not answer within {SSHD_LIMIT:g} s{_log_end(init)}",
        "a firewall of this machine may drop packets to the sandbox's bridge (see `nft list ruleset`)",
    )


def reaches(init: Identity, address: str, port: int) -> bool:
    """Whether a TCP connection from that host opens within 2 s."""
    code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)"
    argv = [
        path_of("nsenter"),
        "-t",
        str(init.pid),
        "-n",
        sys.executable,
        "-I",
        "-c",
        code,
        address,
        str(port),
    ]
    return subprocess.run(argv, capture_output=True, timeout=30, check=False).returncode == 0


def _has_banner(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=1.0) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _log_end(init: Identity) -> str:
    try:
        lines = Path(f"/proc/{init.pid}/root{SSHD_LOG}").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return f"; its log ends with: {' / '.join(lines[-3:])}" if lines else ""
