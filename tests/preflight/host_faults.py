"""Faults of a host that need no GPU: how each is planted on a sandbox host, and what names it."""

from __future__ import annotations

import sys

from clusterkit.sandbox.sandbox import Sandbox
from tests.preflight.faults import Change, Fault, do, lines, program, running, supervised, told

USER, PASSWORD = "train", "right"
RUN_DIRECTORY = f"/home/{USER}/.clusterkit"
# The environment that trains, as a person makes one, with a Paddle as its package metadata shows it.
PYTHON = "/opt/train/bin/python"
PADDLE = "3.2.0"
_SITE = '"$(echo /opt/train/lib/python3*/site-packages)"'
# All that the inventory lets a job use; a job of the four hosts needs half of it.
PORTS = "29400-29431"


def prepare(sandbox: Sandbox, host: str) -> None:
    """What a person has made there before."""
    do(sandbox, host, f"{sys.executable} -m venv --without-pip /opt/train\n{_metadata(PADDLE)}")


def _metadata(version: str) -> str:
    info = f"{_SITE}/paddlepaddle-{version}.dist-info"
    return f"mkdir -p {info}; printf 'Name: paddlepaddle\\nVersion: {version}\\n' >{info}/METADATA"


def _paddle(version: str) -> Change:
    """Another Paddle; none for ""."""
    remove = f"rm -r {_SITE}/paddlepaddle-*.dist-info"
    return lines(f"{remove}; {_metadata(version) if version else ':'}", f"{remove} || :; {_metadata(PADDLE)}")


def _interpreter(version: str) -> Change:
    """The interpreter takes itself for another one."""
    text = f"import sys; sys.version_info = ({version}, 'final', 0)"
    file = f"{_SITE}/sitecustomize.py"
    return lines(f'echo "{text}" >{file}', f"rm {file}")


def _moved(path: str) -> Change:
    return lines(f"mv {path} {path}.away", f"mv {path}.away {path}")


def edited(path: str, change: str) -> Change:
    """The file after a change by sed, in its place."""
    return lines(
        f"cp -p {path} {path}.sound; sed -i '{change}' {path}", f"cp -p {path}.sound {path}; rm {path}.sound"
    )


def _mounted(options: str) -> Change:
    """A file system of its own where runs would lie."""
    mount = f"mount -t tmpfs -o mode=1777,{options} tmpfs {RUN_DIRECTORY}"
    return lines(f"mkdir {RUN_DIRECTORY}; {mount}", f"umount {RUN_DIRECTORY}; rmdir {RUN_DIRECTORY}")


def _available(kilobytes: int) -> Change:
    """What the host says of its memory, as a container's host does."""
    change = f"s/^MemAvailable:.*/MemAvailable: {kilobytes} kB/"
    return lines(
        f"sed '{change}' /proc/meminfo >/run/meminfo; mount --bind /run/meminfo /proc/meminfo",
        "umount /proc/meminfo; rm /run/meminfo",
    )


def _clock(words: str) -> Change:
    """What the login's `date` says: all hosts of a machine have its kernel's clock."""
    return program("/usr/local/bin/date", f"exec /usr/bin/date -d '{words}' \"$@\"")


def _cloned(sandbox: Sandbox, host: str) -> None:
    text = told(sandbox, "node01", "cat /etc/machine-id")
    do(sandbox, host, "cp -p /etc/machine-id /etc/machine-id.sound; cat >/etc/machine-id", text)


_GOMP = "ldconfig -p | sed -n 's/.*libgomp\\.so\\.1 .* => //p' | sort -u"
# What sudo keeps from being read.
_UNREAD = (("firewall", "unknown"),)
_BASHRC = f"/home/{USER}/.bashrc"

# Each one's hosts are node02, node03, node04 in this order: one fault on each.
BATCHES: tuple[tuple[Fault, ...], ...] = (
    (
        Fault(
            "the user may not become root",
            "sudo",
            "manual",
            *_moved(f"/etc/sudoers.d/{USER}"),
            f"user {USER} cannot become root: ",
            beside=_UNREAD,
        ),
        Fault(
            "sudo is not installed",
            "sudo",
            "manual",
            *_moved("/usr/bin/sudo"),
            "sudo is not there",
            beside=_UNREAD,
        ),
        Fault(
            "another sudo password",
            "sudo",
            "manual",
            *edited(f"/etc/sudoers.d/{USER}", "s/NOPASSWD://"),
            "the sudo password was wrong",
            beside=_UNREAD,
        ),
    ),
    (
        Fault(
            "a clock two seconds ahead",
            "clock",
            "warning",
            *_clock("2 seconds"),
            "ahead of this machine's",
        ),
        Fault(
            "a clock a minute behind",
            "clock",
            "failed",
            *_clock("1 minute ago"),
            "behind this machine's",
        ),
        Fault(
            "the machine id of another host",
            "machine id",
            "warning",
            _cloned,
            lambda sandbox, host: do(sandbox, host, "mv /etc/machine-id.sound /etc/machine-id"),
            "has the same /etc/machine-id as node01",
            twin="node01",
            votes=("machine id",),
        ),
    ),
    (
        Fault(
            "no interpreter",
            "python",
            "failed",
            *_moved(PYTHON),
            f"there is no interpreter {PYTHON}",
            ("paddle", "same paddle", "same python", "libgomp"),
            between=("proof",),
        ),
        Fault(
            "an interpreter that is too old",
            "python",
            "failed",
            *_interpreter("3, 5, 2"),
            "is Python 3.5.2, and 3.6 is the oldest",
            ("paddle", "same paddle", "same python", "libgomp"),
            votes=("Python",),
        ),
        Fault("no right to remote_dir", "remote_dir", "failed", *_mounted("ro"), "cannot be written"),
    ),
    (
        Fault(
            "no Paddle",
            "paddle",
            "failed",
            *_paddle(""),
            f"Paddle is not installed for {PYTHON}",
            ("same paddle",),
        ),
        Fault(
            "a Paddle that is too old",
            "paddle",
            "failed",
            *_paddle("1.7.2"),
            "Paddle 1.7.2 is too old",
            ("same paddle",),
            votes=("Paddle",),
        ),
        Fault(
            "no libgomp",
            "libgomp",
            "failed",
            *lines(
                f"{_GOMP} >/run/gomp; while read -r file; do mv $file $file.away; done </run/gomp",
                "while read -r file; do mv $file.away $file; done </run/gomp; rm /run/gomp",
            ),
            "libgomp.so.1 cannot be loaded",
        ),
    ),
    (
        Fault(
            "another Paddle",
            "same paddle",
            "warning",
            *_paddle("3.1.1"),
            f"has paddlepaddle 3.1.1, the other nodes paddlepaddle {PADDLE}",
            votes=("Paddle",),
        ),
        Fault(
            "another interpreter",
            "same python",
            "warning",
            *_interpreter("3, 9, 2"),
            "has Python 3.9, the other nodes 3.",
            votes=("Python",),
        ),
        Fault("remote_dir without the right to run", "remote_dir", "failed", *_mounted("noexec"), "noexec"),
    ),
    (
        Fault(
            "a file in the place of remote_dir",
            "remote_dir",
            "failed",
            *lines(f"touch {RUN_DIRECTORY}", f"rm {RUN_DIRECTORY}"),
            "is not a directory",
        ),
        Fault("little room", "disk space", "warning", *_mounted("size=600m"), "only 0.59 GiB are free"),
        Fault("a disk that is full", "disk space", "failed", *_mounted("size=100m"), "only 0.1 GiB are free"),
    ),
    (
        Fault("little memory", "memory", "warning", *_available(900_000), "0.9 GiB of "),
        Fault("no memory", "memory", "failed", *_available(90_000), "0.1 GiB of "),
        Fault(
            "64 MB of /dev/shm",
            "shared memory",
            "warning",
            *lines("mount -o remount,size=64m /dev/shm", "mount -o remount,size=50% /dev/shm"),
            "/dev/shm has 0.06 GiB",
        ),
    ),
    (
        Fault(
            "a process of a run that is over",
            "left-over processes",
            "failed",
            *running("", PYTHON, "CLUSTERKIT_RUN_ID=20260101-120000-dead", USER),
            "a process of run 20260101-120000-dead, which is over: pid ",
        ),
        Fault(
            "another run that is alive",
            "other runs",
            "warning",
            *running(
                supervised("20260101-120000-live"), PYTHON, "CLUSTERKIT_RUN_ID=20260101-120000-live", USER
            ),
            "run 20260101-120000-live is alive here",
        ),
        Fault(
            "a kernel that was updated",
            "reboot",
            "warning",
            *lines(
                "mkdir -p /lib/modules; mount -t tmpfs none /lib/modules; mkdir /lib/modules/6.0.0-new",
                "umount /lib/modules",
            ),
            "are gone from /lib/modules",
        ),
    ),
    (
        Fault(
            "few open files for the user",
            "limits",
            "warning",
            *lines(f"echo 'ulimit -n 512' >{_BASHRC}", f"rm {_BASHRC}"),
            "ulimit -n is 512",
            votes=("open files",),
        ),
        Fault(
            "a SOCKS proxy at login",
            "login environment",
            "warning",
            *lines(f"echo 'export ALL_PROXY=socks5://proxy:1080' >{_BASHRC}", f"rm {_BASHRC}"),
            "ALL_PROXY would catch the rendezvous",
        ),
        Fault(
            "what a cloud's launcher has left",
            "login environment",
            "warning",
            *lines(f"echo 'export PADDLE_TRAINER_ENDPOINTS=10.0.0.9:6170' >{_BASHRC}", f"rm {_BASHRC}"),
            "PADDLE_TRAINER_ENDPOINTS ",
        ),
    ),
    (
        Fault(
            "the node address is not on the host",
            "node address",
            "failed",
            *lines(
                "ip -o -4 addr show eth1 | awk '{print $4}' >/run/address; ip addr flush dev eth1",
                "ip addr add $(cat /run/address) dev eth1; rm /run/address",
            ),
            "is not on this host, which has ",
            no_job=True,
        ),
        Fault(
            "somebody else's program on all ports of a job",
            "ports",
            "failed",
            *running(
                "held = [socket.create_server(('', port)) for port in range(29400, 29432, 8)]",
                PYTHON,
                user=USER,
            ),
            " is in use by python",
            no_job=True,
        ),
    ),
)
FAULTS = tuple(fault for batch in BATCHES for fault in batch)
