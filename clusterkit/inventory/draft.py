"""Hosts and groups while an inventory is being read; names only, relations by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterkit.inventory.model import Value

ALL = "all"
UNGROUPED = "ungrouped"


class Loop(Exception):
    """A group would become its own ancestor; the text says which."""


@dataclass
class DraftHost:
    """A host named by a line, and what the lines say about it."""

    name: str
    variables: dict[str, Value] = field(default_factory=dict)


@dataclass
class DraftGroup:
    """A group with its direct hosts, children and parents, in the order in which they were met."""

    name: str
    priority: int = 1
    hosts: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)
    variables: dict[str, Value] = field(default_factory=dict)


class Draft:
    """What has been read so far. `all` and `ungrouped` exist from the start."""

    def __init__(self) -> None:
        self.hosts: dict[str, DraftHost] = {}
        self.groups: dict[str, DraftGroup] = {ALL: DraftGroup(ALL), UNGROUPED: DraftGroup(UNGROUPED)}
        self.warnings: list[str] = []
        self.add_child(ALL, UNGROUPED)

    def add_group(self, name: str) -> DraftGroup:
        """The group of that name, new if need be."""
        return self.groups.setdefault(name, DraftGroup(name))

    def add_host(self, name: str, group: str) -> DraftHost:
        """The host of that name, new if need be, now a member of `group`."""
        host = self.hosts.setdefault(name, DraftHost(name))
        members = self.groups[group].hosts
        if name not in members:
            members.append(name)
        return host

    def add_child(self, parent: str, child: str) -> None:
        """`child` is now a child of `parent`, in the order of the calls. Raises Loop."""
        if child == ALL:
            raise Loop("'all' holds every group, so it cannot be the child of one")
        if parent == child:
            raise Loop(f"group {child!r} cannot be its own child")
        if child in self.ancestors(parent):
            raise Loop(f"group {child!r} already contains {parent!r}, so it cannot be a child of it")
        if child not in self.groups[parent].children:
            self.groups[parent].children.append(child)
            self.groups[child].parents.append(parent)

    def ancestors(self, name: str) -> set[str]:
        """Every group above `name`, without itself."""
        found: set[str] = set()
        waiting = list(self.groups[name].parents)
        while waiting:
            group = waiting.pop()
            if group not in found:
                found.add(group)
                waiting.extend(self.groups[group].parents)
        return found

    def finish(self) -> None:
        """Every group is below `all`, and exactly the hosts in no group of the file are in `ungrouped`."""
        for group in self.groups.values():
            if group.name != ALL and not group.parents:
                self.add_child(ALL, group.name)
        grouped = {host for group in self._named_groups() for host in group.hosts}
        ungrouped = self.groups[UNGROUPED]
        ungrouped.hosts = [host for host in ungrouped.hosts if host not in grouped]
        ungrouped.hosts += [
            host for host in self.hosts if host not in grouped and host not in ungrouped.hosts
        ]

    def memberships(self) -> dict[str, list[str]]:
        """For each host the groups that hold it, directly or not, without `all`, weakest first.

        The order is Ansible's: by depth below `all`, then `ansible_group_priority`, then name.
        """
        depths = self._depths()
        groups_of: dict[str, set[str]] = {host: set() for host in self.hosts}
        for group in self.groups.values():
            holders = {group.name, *self.ancestors(group.name)} - {ALL}
            for host in group.hosts:
                groups_of[host] |= holders
        return {
            host: sorted(names, key=lambda name: (depths[name], self.groups[name].priority, name))
            for host, names in groups_of.items()
        }

    def _named_groups(self) -> Iterator[DraftGroup]:
        return (group for name, group in self.groups.items() if name not in (ALL, UNGROUPED))

    def _depths(self) -> dict[str, int]:
        """The longest way down from `all` to each group."""
        depths: dict[str, int] = {}

        def depth(name: str) -> int:
            if name not in depths:
                depths[name] = max((depth(parent) + 1 for parent in self.groups[name].parents), default=0)
            return depths[name]

        for name in self.groups:
            depth(name)
        return depths
