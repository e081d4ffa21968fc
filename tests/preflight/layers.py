"""All that a host has of its own: what was written since it came up, file by file."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from clusterkit.sandbox.sandbox import Sandbox

# What writes by itself while we look: a login is noted, a daemon has a log.
_LOGS = ("var/log/",)


def layer(sandbox: Sandbox, host: str, without: tuple[str, ...] = ()) -> str:
    """A line for each file and folder of the host's overlay: mode, owner, content, and when it was written.

    `without` are the beginnings of paths that are somebody else's to write, logs among them anyway.
    """
    upper = sandbox.directory / "disks" / host / "upper"
    lines = []
    for folder, folders, files in sorted(os.walk(upper)):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for path in (Path(folder), *(Path(folder) / name for name in sorted((*files, *links)))):
            shown = f"{path.relative_to(upper)}"
            if not shown.startswith((*_LOGS, *without)) and not _copied_up(path, Path("/", shown)):
                lines.append(f"{shown} {_described(path)}")
    return "\n".join(lines)


def without_times(text: str) -> str:
    """The same for files that were written and taken back."""
    return re.sub(r"^(.*) \d{19}$", r"\1", text, flags=re.MULTILINE)


def _copied_up(path: Path, below: Path) -> bool:
    """A folder of this machine's, which overlayfs has here as well once a file in it was written."""
    folders = stat.S_ISDIR(path.lstat().st_mode) and below.is_dir() and not below.is_symlink()
    return folders and _described(path) == _described(below)


def _described(path: Path) -> str:
    found = path.lstat()
    told = f"{found.st_mode:o} {found.st_uid}:{found.st_gid}"
    if stat.S_ISLNK(found.st_mode):
        return f"{told} → {path.readlink()}"
    if stat.S_ISREG(found.st_mode):
        return f"{told} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]} {found.st_mtime_ns}"
    return told
