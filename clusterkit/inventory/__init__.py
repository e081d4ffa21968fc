"""Read an Ansible INI inventory, and type the variables that are ours.

`load` → Inventory, `select` → the hosts of a pattern, `settings` → one host's variables typed, `find` → which
inventory a command means, `listing` and `graph` → what was understood (`narrowed` to some hosts).
"""

from clusterkit.inventory.find import Found, find, members_pattern, project_file
from clusterkit.inventory.listing import graph, listing, narrowed
from clusterkit.inventory.loading import load
from clusterkit.inventory.patterns import select
from clusterkit.inventory.schema import settings

__all__ = [
    "Found",
    "find",
    "graph",
    "listing",
    "load",
    "members_pattern",
    "narrowed",
    "project_file",
    "select",
    "settings",
]
