"""Which server a mount needs (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clusterkit.inventory.model import Mount

NFS_PORT = 2049
# Types whose server is only connected to; NFS is asked by an RPC call.
_PORTS = {"cifs": 445, "smb3": 445, "glusterfs": 24007}


@dataclass(frozen=True)
class Server:
    """A name or an address (IPv6 without brackets), and a TCP port. `nfs`: the version to call, or 0."""

    host: str
    port: int
    nfs: int = 0

    @property
    def kind(self) -> str:
        """How it is called in a message."""
        return "NFS server" if self.nfs else "server"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def host_of(source: str) -> str:
    """The server that a source names (`nas:/export`, `[fd00::1]:/export`, `//nas/share`), "" for none."""
    match = re.match(r"//([^/\\]+)|\[([0-9A-Fa-f:.%\w]+)\]:|([^/:\[\]]+):/", source)
    return next((found for found in match.groups() if found), "") if match else ""


def server_of(mount: Mount) -> Server | None:
    """Who has to answer on TCP before this can be mounted; None where that is not known.

    The port of NFS is 2049 unless the options name one. RDMA and UDP are not tried.
    """
    host = host_of(mount.source)
    if not host:
        return None
    if mount.type in ("nfs", "nfs4"):
        options = dict(each.partition("=")[::2] for each in mount.options.split(","))
        if options.get("proto", "tcp") not in ("tcp", "tcp6") or "rdma" in options or "udp" in options:
            return None
        port = options.get("port", "")
        return Server(
            host, int(port) if port.isdigit() and int(port) else NFS_PORT, _version(mount.type, options)
        )
    return Server(host, _PORTS[mount.type]) if mount.type in _PORTS else None


def _version(kind: str, options: dict[str, str]) -> int:
    said = options.get("vers", options.get("nfsvers", ""))[:1]
    return int(said) if said in ("2", "3", "4") else (4 if kind == "nfs4" else 3)
