"""The mounts themselves, now and after a reboot: what preflight changes for shared storage."""

from __future__ import annotations

from shlex import quote

from clusterkit.inventory.model import Mount
from clusterkit.steps.engine import LAUNCH, Change, Fleet, State
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


class _Mounting(StorageStep):
    """Where another check has found why something cannot be mounted, that is all there is to say."""

    def skip(self, host: str, fleet: Fleet) -> str:
        reason = super().skip(host, fleet)
        if not reason and not _possible(host, fleet):
            return "nothing can be mounted before what the other checks say is mended"
        return reason


class Mounts(_Mounting):
    """What is declared is mounted."""

    name = "mounts"
    tags = frozenset({LAUNCH})

    def desired(self, host: str, fleet: Fleet) -> State:
        """On each path its source, as the inventory calls it."""
        return {mount.path: mount.source for mount in _possible(host, fleet)}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The declared source also where the kernel knows it under another name; nothing is mounted else."""
        found = facts_of(host, fleet).mounts
        return {
            mount.path: mount.source if is_mounted(mount, found[mount.path]) else None
            for mount in _possible(host, fleet)
        }

    def fix(self, change: Change) -> list[str]:
        found, lines = facts_of(change.host, change.fleet).mounts, list[str]()
        for mount in _missing(change):
            inside = above(mount, change.settings) is not None
            lines += changing.mount(mount, found[mount.path].missing, inside=inside)
        return lines

    def undo(self, host: str, fleet: Fleet) -> list[str]:
        """Every line of ours with its mount, whether the inventory still declares it or not."""
        return changing.take_back(fstab.marked(facts_of(host, fleet).fstab or ()))

    def explain(self, change: Change) -> str:
        return "; ".join(f"{mount.source} is not mounted on {mount.path}" for mount in _missing(change))

    def hint(self, change: Change) -> str:
        return "clusterkit preflight mounts it"


class MountsAtBoot(_Mounting):
    """What is declared stands in /etc/fstab: in our marked line, or in one of the host's own.

    Ours is written once the mount has come about, so that a mistake in the inventory is in no table.
    """

    name = "mounts at boot"

    def desired(self, host: str, fleet: Fleet) -> State:
        return {mount.path: fstab.entry(mount) for mount in _possible(host, fleet)}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Somebody else's line that mounts the same counts as the declared one."""
        facts = facts_of(host, fleet)
        found: dict[str, str | None] = {}
        for mount in _possible(host, fleet):
            seen, line = facts.mounts[mount.path], line_for(mount, facts)
            if facts.fstab is None:
                found[mount.path] = _UNREADABLE
            elif line is None:
                found[mount.path] = None
            elif MARK not in line.options and is_declared(mount, line, seen):
                found[mount.path] = fstab.entry(mount)
            else:
                found[mount.path] = fstab.entry_of(line)
        return found

    def fix(self, change: Change) -> list[str]:
        facts = facts_of(change.host, change.fleet)
        newline, lines = facts.newline, list[str]()
        for mount in _missing(change) if facts.fstab is not None else []:
            seen, line = facts.mounts[mount.path], line_for(mount, facts)
            if seen.mounted is None:
                why = quote(f"{mount.path} is not mounted, so /etc/fstab is left as it is")
                lines.append(f"mountpoint -q {quote(mount.path)} || {{ echo {why}; exit 1; }}")
            made = 0 if above(mount, change.settings) else seen.missing
            if line is not None and MARK in line.options:
                lines += changing.correct(line, mount, made)
            else:
                found = seen.mounted is not None
                lines += changing.remember(mount, fstab.Marks(made, found, newline=not newline))
                newline = True
        return lines

    def explain(self, change: Change) -> str:
        return "; ".join(_kept(path, change.actual[path]) for path in change.keys)

    def hint(self, change: Change) -> str:
        unreadable = _UNREADABLE in change.actual.values()
        if unreadable:
            return "as root: chmod 644 /etc/fstab"
        return "clusterkit preflight writes it"


def _missing(change: Change) -> list[Mount]:
    return [mount for mount in _possible(change.host, change.fleet) if mount.path in change.keys]


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
        waits = around is not None and around not in found
        comes = fleet.permissions.install and not facts.gpu_containers
        if answer(mount, seen) == ANSWERS and not waits and (comes or not lacks_program(mount, facts)):
            found.append(mount)
    return found


def _kept(path: str, there: object) -> str:
    if there is None:
        return f"{path} is not in /etc/fstab"
    if there == _UNREADABLE:
        return "this login may not read /etc/fstab"
    return f"{path} is in /etc/fstab as {there}"
