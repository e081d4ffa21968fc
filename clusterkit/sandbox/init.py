"""A sandbox host from its first process on. Run as a program; needs Linux, root, the standard library.

stdin is one JSON document (see `rootfs.HostPlan`), stdout gets one: `{"pid": N}` or `{"error": TEXT}`.
The program enters the network namespace, makes the others, and forks. The child becomes the host's init: it
builds the root file system, starts sshd and reaps. SIGUSR1 starts sshd where it is not running, SIGUSR2 stops
it (its sessions go on).

Everything is imported before the root changes: afterwards the interpreter's files may be out of sight.
"""

# pathlib would lengthen each host's start.
# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH108, PTH110, PTH112, PTH114, PTH118, PTH120, PTH208

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import stat
import sys
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID = 0x00020000, 0x04000000, 0x08000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

SIGNALS = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2}
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> None:
    """A C library function that returns 0; OSError that names it where it fails."""
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        shown = ", ".join(os.fsdecode(part) if isinstance(part, bytes) else repr(part) for part in arguments)
        raise OSError(number, f"{name}({shown}): {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2) with text arguments."""
    call(
        "mount",
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(kind) or None,
        ctypes.c_ulong(flags),
        os.fsencode(options) or None,
    )


def main() -> None:
    """Fork the host's init into new namespaces and report how that went."""
    plan = json.load(sys.stdin)
    netns = os.open(plan["netns"], os.O_RDONLY)
    call("setns", netns, 0x40000000)  # CLONE_NEWNET
    os.close(netns)
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        run_host(plan, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    print(json.dumps({"pid": pid} if said == "ready" else {"error": said or "init ended without a word"}))


def run_host(plan: dict[str, Any], report: int) -> NoReturn:
    """The host's first process. `report` gets `ready`, or what went wrong."""
    try:
        os.setsid()
        os.umask(0o022)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        build_root(plan)
        detach(report)
        sshd = start(plan["sshd"])
    except BaseException as error:
        os.write(report, str(error).encode())
        os._exit(1)
    os.write(report, b"ready")
    os.close(report)
    reap(plan["sshd"], sshd)


def build_root(plan: dict[str, Any]) -> None:
    """The process stands in the host's own root; nothing of the old one can be reached."""
    socket.sethostname(plan["hostname"])
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    os.chdir(plan["disk"])
    for name in ("upper", "work", "root"):
        os.makedirs(name, exist_ok=True)
    for hidden in plan["hide"]:
        hide(hidden["path"], int(hidden["mode"], 8))
    # Relative, so that the host's mount table does not tell where this machine keeps its state.
    mount("overlay", "root", "overlay", options="lowerdir=/,upperdir=upper,workdir=work")
    os.chdir("root")
    mount_system(plan["boot_id"])
    mount_groups(plan["groups"])
    for hidden in plan["hide"]:
        if hidden["volatile"]:
            mount("tmpfs", hidden["path"].lstrip("/"), "tmpfs", options="mode=" + hidden["mode"])
    for bind in plan["binds"]:
        bind_in(bind)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    for path in plan["remove"]:
        remove(path)
    for path in plan["empty"]:
        if os.path.isdir(path):
            mount("tmpfs", path, "tmpfs", flags=MS_RDONLY, options="mode=755")
    for directory in plan["directories"]:
        make_directory(**directory)
    for file in plan["files"]:
        write_file(**file)


def hide(path: str, mode: int) -> None:
    """The directory is empty on a new host, and keeps what the host has written there before.

    An opaque directory of the upper layer: what this machine has below that path does not show through.
    """
    upper = "upper" + path
    if os.path.isdir(upper):
        return
    above = "upper"
    for part in path.strip("/").split("/")[:-1]:
        above = f"{above}/{part}"
        if not os.path.isdir(above):
            os.mkdir(above)
            shutil.copystat(above[len("upper") :], above)
    os.mkdir(upper)
    os.chmod(upper, mode)
    os.setxattr(upper, "trusted.overlay.opaque", b"y")


def mount_system(boot_id: str) -> None:
    """What every booted machine has mounted; relative to the new root, which is the current directory."""
    guarded = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("proc", "proc", "proc", flags=guarded)
    mount("sysfs", "sys", "sysfs", flags=guarded)
    mount("tmpfs", "run", "tmpfs", flags=MS_NOSUID | MS_NODEV, options="mode=755")
    mount("/dev", "dev", flags=MS_BIND)
    os.makedirs("dev/pts", exist_ok=True)
    mount(
        "devpts",
        "dev/pts",
        "devpts",
        flags=MS_NOSUID | MS_NOEXEC,
        options="newinstance,ptmxmode=0666,mode=620,gid=5",
    )
    os.makedirs("dev/shm", exist_ok=True)
    mount("tmpfs", "dev/shm", "tmpfs", flags=MS_NOSUID | MS_NODEV, options="mode=1777")
    # The kernel has one boot id for all hosts; a host of its own has its own, and a new one after each start.
    with open("run/.boot_id", "w") as file:
        file.write(boot_id + "\n")
    mount("run/.boot_id", "proc/sys/kernel/random/boot_id", flags=MS_BIND)


def mount_groups(groups: list[dict[str, str]]) -> None:
    """The kernel's control groups are where a booted machine has them, relative to the current directory."""
    if any(group["type"] == "cgroup" for group in groups):
        mount("tmpfs", "sys/fs/cgroup", "tmpfs", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC, options="mode=755")
    for group in groups:
        target = group["path"].lstrip("/")
        os.makedirs(target, exist_ok=True)
        mount(group["type"], target, group["type"], options=group["options"])


def bind_in(bind: dict[str, Any]) -> None:
    """A file or directory of this machine is at its target, relative to the current directory."""
    source, target = bind["source"], bind["target"].lstrip("/")
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))
    mount(source, target, flags=MS_BIND | MS_REC)
    if bind["read_only"]:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def remove(path: str) -> None:
    """A file, or all files of a directory, are gone from the host's layer."""
    if os.path.isdir(path) and not os.path.islink(path):
        for name in os.listdir(path):
            remove(os.path.join(path, name))
    elif os.path.lexists(path):
        os.unlink(path)


def make_directory(path: str, mode: int, uid: int, gid: int, skeleton: bool) -> None:
    """A directory with its owner; with `skeleton` it gets what a new user's home gets, where it lacks it."""
    os.makedirs(path, exist_ok=True)
    os.chown(path, uid, gid)
    os.chmod(path, mode)
    if skeleton and os.path.isdir("/etc/skel"):
        for name in os.listdir("/etc/skel"):
            source, target = os.path.join("/etc/skel", name), os.path.join(path, name)
            if stat.S_ISREG(os.lstat(source).st_mode) and not os.path.lexists(target):
                shutil.copyfile(source, target)
                os.chown(target, uid, gid)


def write_file(path: str, content: str, mode: int, uid: int, gid: int) -> None:
    """A file with its owner; written beside its place and renamed, since a shared home has many writers."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    partial = f"{path}.{socket.gethostname()}.partial"
    with open(partial, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(content)
    os.chown(partial, uid, gid)
    os.chmod(partial, mode)
    os.rename(partial, path)


def detach(kept: int) -> None:
    """Standard streams lead nowhere, only `kept` is open besides, the environment is a system service's."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.closerange(3, kept)
    os.closerange(kept + 1, 4096)
    os.environ.clear()
    os.environ.update(ENVIRONMENT)


def start(argv: list[str]) -> int:
    """The number of a new child with untouched signals."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):  # the C library keeps two of the real-time signals
                continue
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.execve(argv[0], argv, ENVIRONMENT)
    finally:
        os._exit(127)


def reap(argv: list[str], sshd: int) -> NoReturn:
    """Wait for every orphan of the host, for ever; sshd starts and stops when asked."""
    while True:
        number = signal.sigwait(SIGNALS)
        sshd = wait_all(sshd)
        if number == signal.SIGUSR1 and sshd == 0:
            sshd = start(argv)
        elif number == signal.SIGUSR2 and sshd != 0:
            os.kill(sshd, signal.SIGCONT)
            os.kill(sshd, signal.SIGTERM)


def wait_all(sshd: int) -> int:
    """Every ended child is waited for; the result is 0 once sshd was among them."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == 0:
            return sshd
        if pid == sshd:
            sshd = 0


if __name__ == "__main__":
    main()
