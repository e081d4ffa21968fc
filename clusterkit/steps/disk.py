"""A place for the run's files: a directory that may be written, and room in it."""

from __future__ import annotations

from clusterkit.probes import DISK
from clusterkit.steps.engine import LAUNCH, AtLeast, Change, Fleet, Severity, State, Step

GIB = 1024**3


class RunDirectory(Step):
    """`remote_dir`, or the directory that it would be made in, may be written and run from."""

    name = "remote_dir"
    tags = frozenset({LAUNCH})
    probes = (DISK,)

    def desired(self, host: str, fleet: Fleet) -> State:
        """The launcher starts our rank entry as a program, so `noexec` will not do."""
        return {"directory": True, "writable": True, "executable": True}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What the nearest directory that exists allows."""
        disk = fleet.facts[host][DISK]
        return {"directory": disk.is_directory, "writable": disk.writable, "executable": disk.executable}

    def explain(self, change: Change) -> str:
        disk, wanted = change.facts[DISK], change.settings.remote_dir
        if "directory" in change.keys:
            return f"{disk.path} is not a directory, so remote_dir {wanted} cannot be used"
        if "writable" in change.keys:
            return f"{disk.path} cannot be written, so remote_dir {wanted} cannot be used"
        return f"{disk.mount_point} is mounted noexec: nothing can be run from remote_dir {wanted}"

    def hint(self, change: Change) -> str:
        return f"write remote_dir=/a/directory/of/yours for {change.host} in the inventory"


class DiskSpace(Step):
    """Room at `remote_dir` for the job's code, logs and checkpoints."""

    name = "disk space"
    tags = frozenset({LAUNCH})
    probes = (DISK,)

    def desired(self, host: str, fleet: Fleet) -> State:
        """1 GiB, and room for files of which each takes an inode."""
        settings = fleet.members[host]
        wanted = {"free_gib": AtLeast(settings.threshold("disk_warn_gib"))}
        if fleet.facts[host][DISK].free_files is not None:
            wanted["free_files"] = AtLeast(settings.threshold("disk_warn_files"))
        return wanted

    def actual(self, host: str, fleet: Fleet) -> State:
        """What is free for us."""
        disk = fleet.facts[host][DISK]
        files = {} if disk.free_files is None else {"free_files": disk.free_files}
        return {"free_gib": round(disk.free / GIB, 2), **files}

    def severity(self, change: Change) -> Severity:
        """Under 200 MB nothing sensible fits."""
        disk, limit = change.facts[DISK], change.settings.threshold
        no_files = disk.free_files is not None and disk.free_files < limit("disk_fail_files")
        return "failed" if no_files or disk.free < limit("disk_fail_gib") * GIB else "warning"

    def explain(self, change: Change) -> str:
        disk = change.facts[DISK]
        what = f"{change.actual['free_gib']} GiB are"
        if "free_gib" not in change.keys:
            what = f"{disk.free_files} inodes (files) are"
        return f"only {what} free on {disk.mount_point}, where remote_dir lies"

    def hint(self, change: Change) -> str:
        return "make room (`clusterkit runs prune` removes old runs), or write another remote_dir"
