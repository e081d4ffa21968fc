"""Which files travel to the hosts, and the controller's side of bringing them there."""

from clusterkit.sync.collecting import DEFAULT_LIMIT, collect
from clusterkit.sync.manifest import Entry, Manifest
from clusterkit.sync.roots import sync_name, sync_root
from clusterkit.sync.scripts import agent_script, attach_script, bootstrap, removal, shell_path
from clusterkit.sync.staging import StageResult, send

__all__ = [
    "DEFAULT_LIMIT",
    "Entry",
    "Manifest",
    "StageResult",
    "agent_script",
    "attach_script",
    "bootstrap",
    "collect",
    "removal",
    "send",
    "shell_path",
    "sync_name",
    "sync_root",
]
