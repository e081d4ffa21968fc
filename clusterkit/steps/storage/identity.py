"""Whether what is mounted is what was declared, however either is written (pure)."""

from __future__ import annotations

import re

from clusterkit.inventory.model import Mount
from clusterkit.probes.disk import NETWORK_TYPES
from clusterkit.probes.storage import FstabLine, Mounted, MountFacts
from clusterkit.probes.storage.servers import host_of

_NFS = ("nfs", "nfs4")


def is_network(kind: str) -> bool:
    """True for a type that needs the network first: it gets `_netdev`."""
    return kind in NETWORK_TYPES or kind.startswith("fuse.")


def kind_of(actual: str) -> str:
    """A type as it is declared: `fuse.glusterfs` is what `glusterfs` becomes, NFS has two names for one."""
    plain = actual.removeprefix("fuse.")
    return "nfs" if plain in _NFS else plain


def export_of(source: str) -> str:
    """The part of a source after its server, without needless slashes."""
    host = host_of(source)
    rest = source.partition(":")[2] if host and not source.startswith("//") else source
    if source.startswith("["):
        rest = source.partition("]:")[2]
    if source.startswith("//"):
        return rest.rstrip("/").lower()
    return re.sub(r"/+", "/", rest).rstrip("/") or "/"


def _hosts(source: str) -> str:
    return host_of(source).rstrip(".").lower()


def is_mounted(mount: Mount, seen: MountFacts) -> bool:
    """True if what lies on top at the path is what was declared."""
    there = seen.mounted
    if there is None:
        return False
    if seen.same:
        return True
    if seen.device and there.source in (seen.device, mount.source):
        return True
    return kind_of(there.type) == kind_of(mount.type) and _same_source(
        mount.source, there.source, seen, there
    )


def _same_source(declared: str, actual: str, seen: MountFacts, there: Mounted | None) -> bool:
    if declared == actual:
        return True
    if not host_of(declared) or not host_of(actual) or export_of(declared) != export_of(actual):
        return False
    if _hosts(declared) == _hosts(actual) or _hosts(actual) in seen.addresses:
        return True
    known = {
        option[len("addr=") :] for option in (there.options if there else ()) if option.startswith("addr=")
    }
    return bool(seen.addresses & (known | seen.mounted_addresses))


def is_declared(mount: Mount, line: FstabLine, seen: MountFacts) -> bool:
    """True if a line of /etc/fstab mounts what was declared."""
    there = seen.mounted
    if there is not None and line.source == there.source and is_mounted(mount, seen):
        return True
    if kind_of(line.type) != kind_of(mount.type):
        return False
    return _same_source(mount.source, line.source, seen, None)


def place_of(seen: MountFacts) -> str:
    """What is mounted, named alike on every host that mounts the same: the server by its lowest address."""
    there = seen.mounted
    if there is None:
        return ""
    host = _hosts(there.source)
    if not host:
        return there.source
    known = seen.mounted_addresses or seen.addresses
    addresses = {option[len("addr=") :] for option in there.options if option.startswith("addr=")} or known
    return f"{min(addresses, default=host)}:{export_of(there.source)}"


def words(there: Mounted) -> str:
    """`nas:/data (nfs4)`."""
    return f"{there.source} ({there.type.removeprefix('fuse.')})"
