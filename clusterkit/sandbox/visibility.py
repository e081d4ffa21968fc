"""What of this machine a host may see: the operating system and an interpreter, none of the user's files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import InputError
from clusterkit.sandbox.spec import Bind

# Top-level directories that belong to the operating system. Every other one is somebody's work.
_BOOT = (
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "lost+found",
    "proc",
    "run",
    "sbin",
    "sys",
)
SYSTEM = frozenset((*_BOOT, "gnu", "nix", "opt", "snap", "usr", "var"))
PRIVATE = {
    "/root": "700",
    "/home": "755",
    "/tmp": "1777",
    "/var/tmp": "1777",
    "/mnt": "755",
    "/media": "755",
    "/srv": "755",
}


@dataclass(frozen=True)
class Hidden:
    """A directory that is empty on a new host. A `volatile` one is so after each start."""

    path: str
    mode: str = "755"
    volatile: bool = False


def hidden_directories(extra: Iterable[Path]) -> tuple[Hidden, ...]:
    """All homes, all temporary files, every top-level directory that is not the system's, and `extra`.

    Of `extra` what lies in one of the others is left out, and so is a directory that the system needs.
    """
    found = dict(PRIVATE)
    with os.scandir("/") as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if entry.is_dir(follow_symlinks=False) and entry.name not in SYSTEM and entry.path not in found:
            found[entry.path] = "755"
    for path in sorted({Path(os.path.realpath(path)) for path in extra}):
        if not _lies_in(path, found) and _may_be_hidden(path):
            found[str(path)] = "755"
    return tuple(Hidden(path, mode, path == "/tmp") for path, mode in found.items() if Path(path).is_dir())


def controllers_own(state: Path) -> tuple[Path, ...]:
    """Where this clusterkit works: current directory, source tree, virtual environment, state."""
    found = [Path.cwd(), state]
    package = package_directory()
    if (package.parent / "pyproject.toml").exists():
        found.append(package.parent)
    if sys.prefix != sys.base_prefix:
        found.append(Path(sys.prefix))
    return tuple(found)


def package_directory() -> Path:
    """Where this clusterkit is imported from; emptied on hosts, whose interpreter may be the controller's."""
    return Path(__file__).resolve().parents[1]


def interpreter_binds(interpreters: Sequence[str], hidden: Sequence[Hidden]) -> tuple[Bind, ...]:
    """Read-only binds of each interpreter's prefixes, where the host would not see them anyway."""
    covered = {entry.path: entry.mode for entry in hidden}
    wanted: list[Path] = []
    for interpreter in interpreters:
        for prefix in _prefixes(interpreter):
            if prefix not in wanted and (_lies_in(prefix, covered) or _is_elsewhere(prefix)):
                wanted.append(prefix)
    outermost = [path for path in wanted if not any(other in path.parents for other in wanted)]
    return tuple(Bind(str(path), str(path), read_only=True) for path in outermost)


def _prefixes(interpreter: str) -> tuple[Path, ...]:
    code = "import sys; print(sys.prefix); print(sys.base_prefix)"
    try:
        done = subprocess.run(
            [interpreter, "-I", "-c", code], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(
            f"--python {interpreter} does not run: {error}",
            "give the path of a Python interpreter of this machine",
        ) from error
    found = [Path(line) for line in done.stdout.splitlines()]
    binary = Path(os.path.realpath(interpreter))
    if not any(prefix in binary.parents for prefix in found):
        found.append(binary.parent.parent)
    return tuple(found)


def _lies_in(path: Path, directories: Iterable[str]) -> bool:
    return any(Path(directory) in (path, *path.parents) for directory in directories)


def _may_be_hidden(path: Path) -> bool:
    """Whether a host can do without it: /opt/x and /var/lib/x are somebody's, /usr/lib and /etc are not."""
    parts = path.parts[1:]
    if not parts or parts[0] not in SYSTEM:
        return bool(parts)
    return (parts[0] == "opt" and len(parts) >= 2) or (parts[0] in ("var", "usr") and len(parts) >= 3)


def _is_elsewhere(path: Path) -> bool:
    """Whether it is on another file system than `/`: the overlay does not show it."""
    try:
        return path.stat().st_dev != Path("/").stat().st_dev
    except OSError:
        return False
