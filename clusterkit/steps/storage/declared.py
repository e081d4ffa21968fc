"""The declared mounts of a host, each with what is in its way (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.inventory.model import Mount, Settings
from clusterkit.probes.storage import STORAGE, FstabLine, MountFacts, StorageFacts
from clusterkit.probes.storage.servers import server_of
from clusterkit.steps.engine import Fleet
from clusterkit.steps.storage.fstab import marked
from clusterkit.steps.storage.identity import is_declared, is_mounted, is_network, words

# The programs that mount(8) calls for a type, and the package that has them.
PACKAGES = {
    "nfs": {"apt-get": "nfs-common", "dnf": "nfs-utils", "yum": "nfs-utils", "zypper": "nfs-client"},
    "cifs": dict.fromkeys(("apt-get", "dnf", "yum", "zypper"), "cifs-utils"),
    "glusterfs": {
        "apt-get": "glusterfs-client",
        "dnf": "glusterfs-fuse",
        "yum": "glusterfs-fuse",
        "zypper": "glusterfs",
    },
    "ceph": dict.fromkeys(("apt-get", "dnf", "yum", "zypper"), "ceph-common"),
}
PACKAGES["nfs4"], PACKAGES["smb3"] = PACKAGES["nfs"], PACKAGES["cifs"]

ANSWERS = "answers"


def mounts(settings: Settings) -> list[Mount]:
    """In the order in which they are mounted: what holds another mount comes before it."""
    return sorted(settings.mounts, key=lambda mount: mount.path.count("/"))


def facts_of(host: str, fleet: Fleet) -> StorageFacts:
    """Raises ProbeFailed."""
    return fleet.facts[host][STORAGE]


def line_for(mount: Mount, facts: StorageFacts) -> FstabLine | None:
    """The last line of /etc/fstab for that path: ours if we have one there."""
    there = [line for line in facts.fstab or () if line.path == mount.path]
    ours = marked(there) or there
    return ours[-1] if ours else None


def obstacle(mount: Mount, settings: Settings, facts: StorageFacts) -> str:
    """What is on the path instead of the declared mount, or would be hidden by it; "" for nothing."""
    seen = facts.mounts[mount.path]
    twice = [other.source for other in settings.mounts if other.path == mount.path and other != mount]
    if twice:
        return f"a second entry in the inventory ({twice[0]})"
    if seen.mounted is not None and not is_mounted(mount, seen):
        return words(seen.mounted)
    if not _hidden(mount, settings, facts):
        if seen.exists and not seen.directory:
            return "a file"
        if seen.full:
            return "files of this host"
    line = line_for(mount, facts)
    if line is not None and line not in marked([line]) and not is_declared(mount, line, seen):
        return f"{line.source} ({line.type}) in /etc/fstab"
    return ""


def _hidden(mount: Mount, settings: Settings, facts: StorageFacts) -> bool:
    """True if what is on the path now will not be there once the mount around it is."""
    around = above(mount, settings)
    return around is not None and not is_mounted(around, facts.mounts[around.path])


def answer(mount: Mount, seen: MountFacts) -> str:
    """Whether the storage answers: `answers` (also where nobody can be asked), else what came instead."""
    if seen.mounted is not None:
        if not seen.answers:
            return "no answer"
        return seen.error or ANSWERS
    if not seen.answers:
        return "the path does not answer"
    server = server_of(mount)
    if server is None or not seen.server:
        return ANSWERS
    if seen.server == "nameless":
        return "no such name"
    if seen.server == "connecting":
        return (seen.reply or "no connection").lower()
    if seen.server == "connected":
        return "no answer" if server.nfs else ANSWERS
    return {"00000001": "no NFS", "00000002": f"no NFS {server.nfs}"}.get(seen.reply[-8:], ANSWERS)


def lacks_program(mount: Mount, facts: StorageFacts) -> bool:
    """True if the host cannot mount this type for want of a package."""
    return mount.type in PACKAGES and mount.type not in facts.programs


def above(mount: Mount, settings: Settings) -> Mount | None:
    """The declared mount in which this one's path lies."""
    around = [other for other in settings.mounts if mount.path.startswith(f"{other.path}/")]
    return max(around, key=lambda other: len(other.path), default=None)


def present(host: str, fleet: Fleet) -> Sequence[tuple[Mount, MountFacts]]:
    """The declared mounts that are there and answer. Raises ProbeFailed."""
    found = facts_of(host, fleet).mounts
    pairs = [(mount, found[mount.path]) for mount in mounts(fleet.members[host])]
    return [
        (mount, seen) for mount, seen in pairs if is_mounted(mount, seen) and answer(mount, seen) == ANSWERS
    ]


def shared_paths(fleet: Fleet, hosts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Path → host → what is mounted, where that comes from a server, is as declared, and may be written.

    For the proof that what one host writes is read by the others.
    """
    found: dict[str, dict[str, str]] = {}
    for host in hosts:
        if host not in fleet.facts or fleet.facts[host].failure(STORAGE):
            continue
        for mount, seen in present(host, fleet):
            there = seen.mounted
            if there and server_side(mount) and seen.writable and not there.read_only:
                found.setdefault(mount.path, {})[host] = there.source
    return found


def server_side(mount: Mount) -> bool:
    """True where other hosts see the same files."""
    return is_network(mount.type)
