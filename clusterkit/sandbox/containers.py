"""What Docker and Podman need of a host: a disk that is no overlay, and the kernel's control groups.

Images and containers lie on this machine's disk, one directory a host, until the sandbox is down. The control
groups are this machine's own, so a host's containers get a place of their own in them, which is removed too.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from clusterkit.sandbox.files import File
from clusterkit.sandbox.spec import Bind

ROOT = PurePosixPath("/sys/fs/cgroup")
GROUPS = "clusterkit-sandbox"
# Docker's and Podman's data. Of containerd only Docker's own is used, which lies in the first.
STORES = ("/var/lib/docker", "/var/lib/containers")
# A container's processes end a moment after their host's init.
REMOVE_LIMIT = 5.0


@dataclass(frozen=True)
class ControlGroups:
    """One hierarchy of control groups: where it is mounted, and as what."""

    path: str
    type: str
    options: str


def hierarchies() -> tuple[ControlGroups, ...]:
    """What a host gets of this machine's: one of version 2, or several of version 1 (crun refuses both)."""
    found = _mounted()
    return tuple([one for one in found if one.type == "cgroup"] or found)


def _mounted() -> list[ControlGroups]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [one for line in lines if (one := _hierarchy(line)) is not None]


def _hierarchy(line: str) -> ControlGroups | None:
    """`32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu`"""
    before, _, after = line.partition(" - ")
    path, (kind, _, options) = PurePosixPath(before.split()[4]), after.split(" ", 2)
    if kind not in ("cgroup", "cgroup2") or ROOT not in (path, *path.parents):
        return None
    # Of the options of version 2 the first mount decides; of version 1 they name the hierarchy.
    chosen = (
        [option for option in options.split(",") if option not in ("rw", "ro")] if kind == "cgroup" else []
    )
    return ControlGroups(str(path), kind, ",".join(chosen))


def stores(directory: Path, host: str) -> tuple[Bind, ...]:
    """The directories of this machine that hold the host's images and containers; they exist afterwards."""
    binds = tuple(
        Bind(str(_of_host(directory, host) / target.rpartition("/")[2]), target) for target in STORES
    )
    for bind in binds:
        Path(bind.source).mkdir(parents=True, exist_ok=True)
    return binds


def files(mark: str, host: str) -> tuple[File, ...]:
    """Docker's and Podman's configuration: the host's own place among the control groups."""
    docker = {"cgroup-parent": f"/{GROUPS}/{mark}/{host}"}
    # Podman expects systemd, which no host of a sandbox runs.
    podman = [
        *("[containers]", 'cgroups = "disabled"', ""),
        *("[engine]", 'cgroup_manager = "cgroupfs"', 'events_logger = "file"', 'runtime = "crun"', ""),
    ]
    return (
        File("/etc/docker/daemon.json", json.dumps(docker) + "\n"),
        File("/etc/containers/containers.conf", "\n".join(podman)),
    )


def erase(directory: Path, host: str) -> None:
    """The host will start without images and containers. It must not run."""
    shutil.rmtree(_of_host(directory, host), ignore_errors=True)


def remove(directory: Path, mark: str) -> None:
    """No images, containers or control groups of the sandbox are left. No host of it runs."""
    shutil.rmtree(directory / "containers", ignore_errors=True)
    deadline = time.monotonic() + REMOVE_LIMIT
    groups = [Path(each.path, GROUPS, mark) for each in _mounted()]
    while groups and time.monotonic() < deadline:
        groups = [group for group in groups if not _remove_tree(group)]
        time.sleep(0.05 if groups else 0)


def _remove_tree(group: Path) -> bool:
    """Whether the control group is gone, and those in it; one that still has processes cannot go."""
    gone = True
    for path in (*_below(group), group) if group.is_dir() else ():
        try:
            path.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            gone = False
    if gone and group.parent.is_dir() and not any(path.is_dir() for path in group.parent.iterdir()):
        group.parent.rmdir()
    return gone


def _below(group: Path) -> Iterator[Path]:
    """Every group below, the deepest first."""
    for path in group.iterdir():
        if path.is_dir():
            yield from _below(path)
            yield path


def _of_host(directory: Path, host: str) -> Path:
    return directory / "containers" / host
