"""The mounts themselves, now and after a reboot: the only step here that changes a host."""

from __future__ import annotations

from clusterkit.inventory.model import Mount
from clusterkit.steps.engine import Change, Fleet, State
from clusterkit.steps.storage import changing, fstab
from clusterkit.steps.storage.base import StorageStep
from clusterkit.steps.storage.declared import (
    ANSWERS,
    above,
    answer,
    facts_of,
    lacks_program,
    line_for,
    mounts,
    obstacle,
)
from clusterkit.steps.storage.fstab import MARK
from clusterkit.steps.storage.identity import is_declared, is_mounted

_UNREADABLE = "unreadable"


class Mounts(StorageStep):
    """What is declared is mounted, and stands in /etc/fstab: in our marked line, or in one of the host's own.

    Where another check has found why something cannot be mounted, that is all there is to say.
    """

    name = "mounts"

    def skip(self, host: str, fleet: Fleet) -> str:
        reason = super().skip(host, fleet)
        if not reason and not _possible(host, fleet):
            return "nothing can be mounted before what the other checks say is mended"
        return reason

    def desired(self, host: str, fleet: Fleet) -> State:
        wanted: dict[str, bool | str] = {}
        for mount in _possible(host, fleet):
            wanted |= {_mounted(mount): True, _in_fstab(mount): fstab.entry(mount)}
        return wanted

    def actual(self, host: str, fleet: Fleet) -> State:
        """Somebody else's line that mounts the same counts as the declared one."""
        facts = facts_of(host, fleet)
        found: dict[str, bool | str | None] = {}
        for mount in _possible(host, fleet):
            seen, line = facts.mounts[mount.path], line_for(mount, facts)
            found[_mounted(mount)] = is_mounted(mount, seen)
            if facts.fstab is None:
                found[_in_fstab(mount)] = _UNREADABLE
            elif line is None:
                found[_in_fstab(mount)] = None
            elif MARK not in line.options and is_declared(mount, line, seen):
                found[_in_fstab(mount)] = fstab.entry(mount)
            else:
                found[_in_fstab(mount)] = fstab.entry_of(line)
        return found

    def fix(self, change: Change) -> list[str]:
        facts = facts_of(change.host, change.fleet)
        if facts.fstab is None:
            return []
        lines: list[str] = []
        newline = facts.newline
        for mount in _possible(change.host, change.fleet):
            seen, line = facts.mounts[mount.path], line_for(mount, facts)
            inside = above(mount, change.settings) is not None
            if _mounted(mount) in change.keys:
                lines += changing.mount(mount, seen.missing, inside=inside)
            if _in_fstab(mount) in change.keys:
                made = 0 if inside else seen.missing
                if line is not None and MARK in line.options:
                    lines += changing.correct(line, mount, made)
                else:
                    found = seen.mounted is not None
                    lines += changing.remember(mount, fstab.Marks(made, found, newline=not newline))
                    newline = True
        return lines

    def undo(self, host: str, fleet: Fleet) -> list[str]:
        """Every line of ours, whether the inventory still declares it or not."""
        return changing.take_back(fstab.marked(facts_of(host, fleet).fstab or ()))

    def explain(self, change: Change) -> str:
        return "; ".join(
            _words(mount, change) for mount in _possible(change.host, change.fleet) if _words(mount, change)
        )

    def hint(self, change: Change) -> str:
        return (
            f"chmod 644 /etc/fstab on {change.host}"
            if facts_of(change.host, change.fleet).fstab is None
            else ""
        )


def _possible(host: str, fleet: Fleet) -> list[Mount]:
    """What is mounted, or can be: nothing in the way, the server answers, the program is there or will be."""
    settings, facts = fleet.members[host], facts_of(host, fleet)
    found = []
    for mount in mounts(settings):
        seen, around = facts.mounts[mount.path], above(mount, settings)
        if obstacle(mount, settings, facts):
            continue
        if is_mounted(mount, seen):
            found.append(mount)
            continue
        waits = around is not None and not is_mounted(around, facts.mounts[around.path])
        comes = fleet.permissions.install and not facts.gpu_containers
        if answer(mount, seen) == ANSWERS and not waits and (comes or not lacks_program(mount, facts)):
            found.append(mount)
    return found


def _mounted(mount: Mount) -> str:
    return f"{mount.path} mounted"


def _in_fstab(mount: Mount) -> str:
    return f"{mount.path} in /etc/fstab"


def _words(mount: Mount, change: Change) -> str:
    parts = []
    if _mounted(mount) in change.keys:
        parts.append(f"{mount.source} is not mounted on {mount.path}")
    if _in_fstab(mount) in change.keys:
        there = change.actual[_in_fstab(mount)]
        if there is None:
            parts.append(f"{mount.path} is not in /etc/fstab")
        elif there == _UNREADABLE:
            parts.append("this login may not read /etc/fstab")
        else:
            parts.append(f"{mount.path} is in /etc/fstab as {there}")
    return ", ".join(parts)
