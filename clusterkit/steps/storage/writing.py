"""Whether those who will run the job may write."""

from __future__ import annotations

from clusterkit.inventory.model import Mount
from clusterkit.probes import HOST
from clusterkit.probes.host import HostFacts
from clusterkit.probes.storage import STORAGE, MountFacts
from clusterkit.probes.storage.access import STORAGE_ACCESS, container_identity
from clusterkit.steps.engine import LAUNCH, Change, Fleet, State
from clusterkit.steps.storage.base import StorageStep
from clusterkit.steps.storage.declared import present
from clusterkit.steps.storage.identity import kind_of


class StorageWritable(StorageStep):
    """The login user, and the container's user where that is another one, as the server sees them."""

    name = "storage writable"
    tags = frozenset({LAUNCH})
    probes = (STORAGE, STORAGE_ACCESS, HOST)

    def skip(self, host: str, fleet: Fleet) -> str:
        return super().skip(host, fleet) or (
            "" if _writable(host, fleet) else "nothing is mounted for writing"
        )

    def desired(self, host: str, fleet: Fleet) -> State:
        return dict.fromkeys(self.actual(host, fleet), True)

    def actual(self, host: str, fleet: Fleet) -> State:
        facts, settings = fleet.facts[host], fleet.members[host]
        identity, login = container_identity(settings), facts[HOST]
        found: dict[str, bool] = {}
        for mount, seen in _writable(host, fleet):
            found[_key(mount.path, login.user, login.uid)] = seen.writable
            if identity is not None and _another(identity, login):
                tried = (facts[STORAGE_ACCESS] or {}).get(mount.path)
                if tried is not None:
                    found[_key(mount.path, settings.container_user or "", identity[0])] = tried
        return found

    def explain(self, change: Change) -> str:
        return "; ".join(
            f"{who} may not write to {path}"
            + (
                ": the server makes nobody of root (root_squash), or exports it read-only"
                if self._squashed(path, who, change)
                else ""
            )
            for path, who in map(_parts, change.keys)
        )

    def hint(self, change: Change) -> str:
        path, who = _parts(change.keys[0])
        if self._squashed(path, who, change):
            # The job is the login user, or root (planning/containers.py).
            way = (
                "log in as somebody who may write there (ansible_user)"
                if change.facts[HOST].uid == 0
                else "leave container_user out: the job is the login user then"
            )
            return f"{way}; or export it with rw,no_root_squash; options=ro if nobody is to write"
        return f"let them write on the server (ls -ldn {path}), or declare the mount with options=ro"

    def _squashed(self, path: str, who: str, change: Change) -> bool:
        """Whether the export's options are the reason: seen from the client, `ro` is as root_squash."""
        types = {mount.path: kind_of(mount.type) for mount in change.settings.mounts}
        return who.endswith("(uid 0)") and types[path] == "nfs"


def _writable(host: str, fleet: Fleet) -> list[tuple[Mount, MountFacts]]:
    return [
        (mount, seen)
        for mount, seen in present(host, fleet)
        if "ro" not in mount.options.split(",") and not (seen.mounted and seen.mounted.read_only)
    ]


def _another(identity: tuple[int, int], login: HostFacts) -> bool:
    """Whether the container's user may have other rights: it has none of the login's further groups."""
    uid, gid = identity
    same = uid == login.uid and (uid == 0 or {gid} >= {login.gid, *login.groups})
    return not same


def _key(path: str, user: str, uid: int) -> str:
    return f"{path} for {user} (uid {uid})"


def _parts(key: str) -> tuple[str, str]:
    path, _, who = key.rpartition(" for ")
    return path, who
