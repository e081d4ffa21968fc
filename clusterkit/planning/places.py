"""Where a run lives on a host: the one rule for every path there."""

from __future__ import annotations

import hashlib
import posixpath
import re
from dataclasses import dataclass

from clusterkit.errors import InputError


@dataclass(frozen=True)
class Home:
    """What must be known of a host to name a path on it: the login user's home and uid, and whether
    `remote_dir` lies on a network file system (logs then go to a local disk)."""

    path: str
    uid: int
    remote_dir_on_network: bool = False


def run_dir(remote_dir: str, alias: str, run_id: str, home: str) -> str:
    """The absolute directory of a run on a host."""
    return posixpath.join(expand(remote_dir, alias, home), file_name(alias), "runs", run_id)


def code_dir(remote_dir: str, alias: str, name: str, home: str) -> str:
    """The absolute directory that the code `name` (see `sync.sync_name`) is synced to."""
    return posixpath.join(expand(remote_dir, alias, home), file_name(alias), "code", name)


def workdir(remote_dir: str, alias: str, code: str | None, root: str, home: str) -> str:
    """The job's working directory: where `code` is synced to, else `root`, which is there already."""
    return code_dir(remote_dir, alias, code, home) if code else root


def home_dir(remote_dir: str, alias: str, home: str) -> str:
    """The absolute directory that is the home of jobs in containers, kept from run to run for caches."""
    return posixpath.join(expand(remote_dir, alias, home), file_name(alias), "home")


def log_dir(run: str, alias: str, run_id: str, home: Home) -> str:
    """The absolute directory of Paddle's logs: in the run's own, or on a local disk if that is remote.

    Many ranks that append to one network file system slow each other down, and a dead server hangs them.
    """
    if home.remote_dir_on_network:
        return f"/var/tmp/clusterkit-{home.uid}/{file_name(alias)}/{run_id}/logs"
    return posixpath.join(run, "logs")


def expand(remote_dir: str, alias: str, home: str) -> str:
    """`remote_dir` as an absolute path; `~` is the login user's home. InputError for a relative one."""
    if remote_dir == "~" or remote_dir.startswith("~/"):
        remote_dir = posixpath.join(home, remote_dir[2:])
    if not remote_dir.startswith("/"):
        raise InputError(
            f"host {alias}: remote_dir={remote_dir} is not an absolute path",
            "write an absolute path, or one that begins with ~/",
        )
    return posixpath.normpath(remote_dir)


def file_name(alias: str) -> str:
    """An alias as one path component: itself if that is safe, else made safe and told apart by a hash."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", alias).lstrip(".-") or "host"
    if safe == alias and len(safe) <= 128:
        return safe
    return f"{safe[:100]}-{hashlib.sha256(alias.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
