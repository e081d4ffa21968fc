"""The sync root: the folder here that becomes the job's working directory on every host."""

from __future__ import annotations

import hashlib
import platform
import re
from pathlib import Path

from clusterkit.errors import InputError, NotFound


def sync_root(script: Path, cwd: Path, home: Path | None = None, *, sent: bool = True) -> Path:
    """`cwd` if `script` lies under it, else the script's folder; absolute, without symbolic links.

    Raises NotFound if there is no such script, InputError if the root would be `/`, the home or above it
    (with `--no-sync` nothing is `sent`, and any root will do).
    """
    place = cwd / script
    if place.is_dir():
        raise InputError(
            f"{script} is a folder, not a script", f"name the script in it, for example {script}/train.py"
        )
    if not place.exists():
        raise NotFound(
            f"no such script: {script} (looked in {cwd})", "check the path; it is relative to where you are"
        )
    where, folder = cwd.resolve(), place.parent.resolve()
    root = where if folder.is_relative_to(where) else folder
    if not sent:
        return root
    house = (home or Path.home()).resolve()
    if house.is_relative_to(root):
        name = "the home directory" if root == house else str(root)
        raise InputError(
            f"{script}: all of {name} would be sent to the hosts",
            "put the script and what it needs in a folder of its own, and start clusterkit in that folder",
        )
    if root == Path(root.anchor):
        raise InputError(
            f"{script}: all of {root} would be sent to the hosts",
            "put the script and what it needs in a folder of its own, and start clusterkit in that folder",
        )
    return root


def script_in(script: Path, cwd: Path, root: Path) -> str:
    """The script as seen from the sync root, with forward slashes: what the plan names it."""
    place = cwd / script
    return (place.parent.resolve() / place.name).relative_to(root).as_posix()


def sync_name(root: Path) -> str:
    """NAME-HASH: the root's name, made safe, and 8 digits that tell roots and controllers apart.

    The same root on the same machine has the same name, so that a second launch sends only what changed.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", root.name).lstrip(".-")[:60] or "code"
    whole = f"{platform.node()}:{root}".encode("utf-8", "surrogateescape")
    return f"{safe}-{hashlib.sha256(whole).hexdigest()[:8]}"
