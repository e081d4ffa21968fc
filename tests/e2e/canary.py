"""Where a secret shows: in which processes, and in which files of a host or of this machine."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster import Cluster

# Where a run, or what it starts, may write on a host.
WRITTEN = ("/root", "/home", "/tmp", "/var/tmp", "/dev/shm", "/run", "/var/log", "/etc")


def canary() -> str:
    """A secret that occurs nowhere else, and that no shell or parser changes."""
    return f"canary-{secrets.token_hex(12)}"


def in_environments(word: str) -> list[str]:
    """The command lines of all processes of this machine, those on its hosts included, that were given it."""
    return [_command(folder) for folder in _processes() if word.encode() in _read(folder / "environ")]


def in_arguments(word: str) -> list[str]:
    """The command lines in which it stands, for everybody to see with `ps`."""
    return [_command(folder) for folder in _processes() if word.encode() in _read(folder / "cmdline")]


def in_files(word: str, root: Path, folders: tuple[str, ...] = ("/",)) -> list[Path]:
    """The regular files below `folders` of `root` that hold it; `root` is a host's "/", or any folder.

    Read from here: a `grep` on the host would have the secret among its own arguments.
    """
    found = [
        Path(where) / name
        for folder in folders
        for where, _, names in os.walk(root / folder.lstrip("/"))
        for name in names
    ]
    return sorted(path for path in found if _holds(path, word.encode()))


def on_host(word: str, cluster: Cluster, host: str, folders: tuple[str, ...] = WRITTEN) -> list[str]:
    """The files of a host that hold it, as the host names them."""
    root = Path(f"/proc/{cluster.sandbox.init(host).pid}/root")
    return [f"/{path.relative_to(root)}" for path in in_files(word, root, folders)]


def _processes() -> Iterator[Path]:
    return (folder for folder in Path("/proc").iterdir() if folder.name.isdigit())


def _command(folder: Path) -> str:
    return _read(folder / "cmdline").rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def _read(path: Path) -> bytes:
    """What the file holds; nothing if it has gone, as a process's does with the process."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _holds(path: Path, word: bytes) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(word) >= 0
    except (OSError, ValueError):  # gone by now, or empty
        return False
