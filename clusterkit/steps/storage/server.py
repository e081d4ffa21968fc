"""Whether the storage answers."""

from __future__ import annotations

from clusterkit.inventory.model import Mount
from clusterkit.probes.storage import LIMIT_S, MountFacts
from clusterkit.probes.storage.servers import Server, server_of
from clusterkit.steps.engine import LAUNCH, Change, Fleet, State
from clusterkit.steps.storage.base import StorageStep
from clusterkit.steps.storage.declared import ANSWERS, answer, facts_of, mounts


class StorageServer(StorageStep):
    """What is mounted answers, and where nothing is mounted yet the server does. Asked with a time limit."""

    name = "storage server"
    tags = frozenset({LAUNCH})

    def desired(self, host: str, fleet: Fleet) -> State:
        return {mount.path: ANSWERS for mount in mounts(fleet.members[host])}

    def actual(self, host: str, fleet: Fleet) -> State:
        found = facts_of(host, fleet).mounts
        return {mount.path: answer(mount, found[mount.path]) for mount in mounts(fleet.members[host])}

    def explain(self, change: Change) -> str:
        """`NFS server nas:2049 does not answer: no connection within 5 s`."""
        return "; ".join(dict.fromkeys(_words(mount, seen) for mount, seen in _silent(change)))

    def hint(self, change: Change) -> str:
        mount, seen = _silent(change)[0]
        return _hint(mount, seen)


def _silent(change: Change) -> list[tuple[Mount, MountFacts]]:
    found = facts_of(change.host, change.fleet).mounts
    return [(mount, found[mount.path]) for mount in mounts(change.settings) if mount.path in change.keys]


def _words(mount: Mount, seen: MountFacts) -> str:
    server, what = server_of(mount), answer(mount, seen)
    named = f"{server.kind} {server} does not answer" if server else f"{mount.source} does not answer"
    if seen.mounted is not None:
        if seen.answers:
            return f"{mount.path} is mounted, but broken: {what.lower()}"
        return f"{named}: it is mounted on {mount.path}, and said nothing for {LIMIT_S} s"
    if server is None or not seen.answers:
        return f"looking at {mount.path} takes longer than {LIMIT_S} s: does it lie on a mount that hangs?"
    if seen.server == "nameless":
        return f"{server.kind} {server.host} has no address: the name is not known on this host"
    if what.startswith("no NFS"):
        return f"{server} answers, but speaks {what}"
    return f"{named}: {_how_far(server, seen, what)}"


def _how_far(server: Server, seen: MountFacts, what: str) -> str:
    if seen.server == "connected":
        return f"it takes connections, and said nothing for {LIMIT_S} s"
    return f"{what} within {LIMIT_S} s" if what == "no connection" else what


def _hint(mount: Mount, seen: MountFacts) -> str:
    server = server_of(mount)
    if seen.mounted is not None and seen.answers:
        return f"as root, when nothing uses it: umount {mount.path}; then run preflight again"
    if seen.mounted is not None:
        return "bring the server back: what waits for it then goes on, and nothing has to be mounted again"
    if server is None:
        return f"look at what {mount.path} lies on"
    if seen.server == "nameless":
        return "write the server's address in the inventory, or its name in /etc/hosts"
    if seen.server == "answered":
        return "declare what it offers (vers=3 in the options), or let it offer this version"
    if seen.server == "connecting" and not seen.reply:
        return f"is {server.host} up, and does a firewall let this host reach its TCP port {server.port}?"
    return f"is the service running on {server.host}? `rpcinfo -p {server.host}` lists what it offers"
