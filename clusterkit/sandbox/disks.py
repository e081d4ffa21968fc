"""The hosts' disks: one tmpfs for the whole sandbox, a directory on it for each host.

It is the sandbox's only mount outside of its hosts. A host that was killed finds its files again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from clusterkit.sandbox.commands import run
from clusterkit.sandbox.requirements import path_of
from clusterkit.sandbox.spec import Bind

SHARED = ".shared"


def mount(directory: Path) -> None:
    """An empty disk for all hosts is there. `directory` is the sandbox's; the disk is freed by `unmount`."""
    point = _point(directory)
    point.mkdir(exist_ok=True)
    run([path_of("mount"), "-t", "tmpfs", "-o", "mode=700", "clusterkit-sandbox", str(point)])


def unmount(directory: Path) -> bool:
    """The disk is gone with all that was on it; whether there was one."""
    point = _point(directory)
    found = False
    while point.is_mount():
        found = True
        run([path_of("umount"), "--lazy", str(point)])
    return found


def of_host(directory: Path, host: str) -> Path:
    """The host's part of the disk."""
    path = _point(directory) / host
    path.mkdir(exist_ok=True)
    return path


def written(disk: Path, path: str) -> str:
    """The text that the host itself has at `path`; "" if it has only what this machine has there."""
    own = disk / "upper" / path.lstrip("/")
    return own.read_text() if own.is_file() else ""


def erase(directory: Path, host: str) -> None:
    """The host will start as installed anew. It must not run."""
    shutil.rmtree(_point(directory) / host, ignore_errors=True)


def shared_home(directory: Path) -> tuple[Bind, ...]:
    """/home and /root as one directory for all hosts."""
    shared = _point(directory) / SHARED
    for name, mode in (("home", 0o755), ("root", 0o700)):
        (shared / name).mkdir(parents=True, exist_ok=True)
        (shared / name).chmod(mode)
    return Bind(str(shared / "home"), "/home"), Bind(str(shared / "root"), "/root")


def _point(directory: Path) -> Path:
    return directory / "disks"
