"""Processes of this machine and of its hosts, read from /proc."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import ClusterkitError

PROC = Path("/proc")


@dataclass(frozen=True)
class Identity:
    """A process that cannot be mistaken for a later one with the same number.

    `started` is field 22 of /proc/PID/stat: clock ticks since boot.
    """

    pid: int
    started: int


@dataclass(frozen=True)
class HostProcess:
    """A process on a host: `pid` on this machine, `host_pid` as the host sees it."""

    pid: int
    host_pid: int
    argv: tuple[str, ...]
    environment: dict[str, str]


def identity(pid: int) -> Identity | None:
    """The process's identity; None where it is gone or a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Identity(pid, int(fields[19]))


def alive(process: Identity) -> bool:
    """Whether exactly this process still runs."""
    return identity(process.pid) == process


def parent(pid: int) -> int | None:
    """The parent's number; None where the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields is not None else None


def argv(pid: int) -> tuple[str, ...]:
    """The command line; empty for a zombie, a kernel thread, or a process that is gone."""
    try:
        text = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ()
    return tuple(text.rstrip("\0").split("\0")) if text else ()


def pids() -> tuple[int, ...]:
    """All processes of this machine."""
    with os.scandir(PROC) as entries:
        return tuple(int(entry.name) for entry in entries if entry.name.isdigit())


def children(pid: int) -> tuple[int, ...]:
    """The process's children."""
    try:
        return tuple(int(word) for word in (PROC / f"{pid}/task/{pid}/children").read_text().split())
    except OSError:  # gone, or a kernel without CONFIG_PROC_CHILDREN
        return tuple(other for other in pids() if parent(other) == pid)


def in_networks(inodes: frozenset[int]) -> tuple[Identity, ...]:
    """Every process, this one left out, whose network namespace is one of these (inode of its file)."""
    links = {f"net:[{inode}]" for inode in inodes}
    found = (identity(pid) for pid in pids() if pid != os.getpid() and _namespace(pid, "net") in links)
    return tuple(process for process in found if process is not None)


def on_host(init: Identity) -> tuple[HostProcess, ...]:
    """Every process of the host whose init this is (init included), also ones that entered by nsenter."""
    namespace = _namespace(init.pid, "pid")
    if namespace is None:
        return ()
    everything = {pid: parent(pid) for pid in pids()}
    inside = {pid for pid in everything if _namespace(pid, "pid") == namespace}
    grown = True
    while grown:  # children in deeper namespaces (a container on the host)
        more = {pid for pid, above in everything.items() if above in inside} - inside
        inside |= more
        grown = bool(more)
    return tuple(found for pid in sorted(inside) if (found := _host_process(pid)) is not None)


def end(processes: list[Identity], *, timeout: float = 10.0) -> None:
    """None of them runs any more: SIGKILL, and a wait. ClusterkitError where one outlives the limit."""
    for process in processes:
        if alive(process):
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    deadline = time.monotonic() + timeout
    left = [process for process in processes if alive(process)]
    while left:
        if time.monotonic() > deadline:
            names = ", ".join(str(process.pid) for process in left)
            raise ClusterkitError(
                f"processes {names} did not end within {timeout:g} s of SIGKILL",
                "they hang in the kernel (see /proc/PID/stack); free what they wait for, then run this again",
            )
        time.sleep(0.005)
        left = [process for process in left if alive(process)]


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _namespace(pid: int, kind: str) -> str | None:
    try:
        return str((PROC / str(pid) / "ns" / kind).readlink())
    except OSError:
        return None


def _host_process(pid: int) -> HostProcess | None:
    if identity(pid) is None:
        return None
    try:
        status = (PROC / str(pid) / "status").read_text(errors="replace")
        raw = (PROC / str(pid) / "environ").read_bytes().decode(errors="surrogateescape")
    except OSError:
        return None
    numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
    pairs = (item.partition("=") for item in raw.split("\0") if "=" in item)
    return HostProcess(
        pid, int(numbers[min(1, len(numbers) - 1)]), argv(pid), {name: value for name, _, value in pairs}
    )
