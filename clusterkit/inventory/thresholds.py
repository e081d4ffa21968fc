"""Where a check begins to complain: every threshold, its default, and why; a site may set its own.

`threshold_NAME=value` in the inventory, for one host, a group or all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PATTERN = re.compile(r"(?:clusterkit_)?threshold_(?P<name>[A-Za-z0-9_]+)")


@dataclass(frozen=True)
class Threshold:
    """One number. The unit is the last word of its name."""

    name: str
    default: float
    why: str


THRESHOLDS = (
    Threshold("clock_warn_s", 0.5, "how far a clock may be off: logs are merged by time"),
    Threshold("clock_fail_s", 5.0, "beyond this the wrong rank would be blamed"),
    Threshold("memory_warn_gib", 1.0, "free memory for each rank: a rank that has imported Paddle holds 0.3"),
    Threshold("memory_fail_gib", 0.3, "below this not even Paddle can be imported"),
    Threshold("disk_warn_gib", 1.0, "free at `remote_dir`, for code, logs and checkpoints"),
    Threshold("disk_fail_gib", 0.19, "below this nothing sensible fits"),
    Threshold("disk_warn_files", 10_000, "free inodes at `remote_dir`, where they are counted"),
    Threshold("disk_fail_files", 1000, "a run writes some hundred files, besides its code"),
    Threshold("shm_gib", 1.0, "/dev/shm for each rank: data loaders die of SIGBUS without"),
    Threshold("storage_free_percent", 5.0, "free on shared storage, in bytes and in files"),
    Threshold("image_gib", 20.0, "room for an image that no host has yet"),
    Threshold("gpu_held_mib", 1024, "memory in use on a GPU on which no process is seen"),
)
DEFAULTS = {threshold.name: threshold.default for threshold in THRESHOLDS}
