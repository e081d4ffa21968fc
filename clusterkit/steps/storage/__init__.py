"""Shared storage: programs, server, what is mounted where, as declared, for whom, and alike on all hosts.

Only `Mounts` and `MountsAtBoot` change a host (docs/preflight-storage.md).
"""

from clusterkit.steps.storage.agreeing import SameData, SameStorage
from clusterkit.steps.storage.asdeclared import MountOptions, StorageSpace
from clusterkit.steps.storage.declared import shared_paths
from clusterkit.steps.storage.mounting import Mounts, MountsAtBoot
from clusterkit.steps.storage.programs import MountPrograms
from clusterkit.steps.storage.server import StorageServer
from clusterkit.steps.storage.source import MountSource
from clusterkit.steps.storage.writing import StorageWritable

STEPS = (
    MountPrograms(),
    StorageServer(),
    MountSource(),
    Mounts(),
    MountsAtBoot(),
    MountOptions(),
    StorageWritable(),
    StorageSpace(),
    SameStorage(),
    SameData(),
)

__all__ = ["STEPS", "shared_paths"]
