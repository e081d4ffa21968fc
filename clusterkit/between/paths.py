"""Whether the path between two hosts carries packets as large as their interfaces say (pure).

A large UDP packet that must not be cut up tells it where a small one passes. Where UDP is closed, a TCP
transfer does: it ends, with segments of full size, or the kernel sends them again and again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusterkit.between.peers import Peer
from clusterkit.preflight import Finding

NAME = "mtu"
# IP and TCP headers, and the time stamps that nearly all kernels add.
_TCP_HEADERS = 40
_TIME_STAMPS = 12
# More than the first window of any kernel holds in segments of 9000 bytes.
TRANSFER_BYTES = 256 * 1024
_UDP_LIMIT = 65535


@dataclass(frozen=True)
class Path:
    """One direction between two hosts: what became of datagrams, and of a TCP transfer if there was one."""

    source: Peer
    to: Peer
    datagrams: Mapping[str, Any] = field(default_factory=dict)
    transfer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mtu(self) -> int:
        """What both interfaces carry."""
        return common_mtu(self.source, self.to)

    @property
    def told_by_datagrams(self) -> bool:
        """True if nothing more has to be tried."""
        return bool(self.datagrams.get("small") and self.datagrams.get("large"))


def common_mtu(one: Peer, other: Peer) -> int:
    """The smaller MTU of both interfaces."""
    return min(one.mtu, other.mtu, _UDP_LIMIT)


def judge(paths: Sequence[Path]) -> list[Finding]:
    """A finding for each direction that does not carry its MTU, or of which it is not known; ok if none.

    Where all paths of a host are so, it is one finding about that host; where all are, it is one in all.
    """
    found = [finding for finding in map(_judge, paths) if finding is not None]
    if found or not paths:
        return _summed(found, paths)
    sizes = sorted({path.mtu for path in paths})
    return [Finding(NAME, "ok", detail=f"every path carries {' or '.join(map(str, sizes))} bytes")]


def _summed(found: Sequence[Finding], paths: Sequence[Path]) -> list[Finding]:
    alike = Counter((finding.status, finding.detail) for finding in found)
    if len(paths) > 2 and len(found) == len(paths) and len(alike) == 1:
        return [replace(found[0], source="", to="", detail=f"{found[0].detail}, between all hosts")]
    summed: list[Finding] = []
    rest = list(found)
    for host in dict.fromkeys(end for path in paths for end in (path.source.alias, path.to.alias)):
        own = [finding for finding in rest if host in (finding.source, finding.to)]
        count = sum(host in (path.source.alias, path.to.alias) for path in paths)
        if count > 2 and len(own) == count and len({(each.status, each.detail) for each in own}) == 1:
            text = f"{own[0].detail}, to and from all others"
            summed.append(replace(own[0], source=host, to="", detail=text))
            rest = [finding for finding in rest if finding not in own]
    return summed + rest


def _judge(path: Path) -> Finding | None:
    if path.told_by_datagrams:
        return None
    outcome = path.transfer.get("outcome")
    if outcome == "stalled" and path.transfer.get("resent"):
        return _black_hole(path)
    if outcome != "open":
        return _unknown(path, f"a transfer ended with: {outcome or 'not tried'}")
    if path.transfer.get("path_mtu", path.mtu) < path.mtu:
        return _smaller(path, int(path.transfer["path_mtu"]))
    full = path.transfer.get("mss", 0) + _TCP_HEADERS + _TIME_STAMPS >= path.mtu
    if path.datagrams.get("small"):
        reason = "though TCP passes" if full else "TCP passes only in smaller segments"
        return _finding(path, "warning", f"UDP packets of {path.mtu} bytes are lost, {reason}")
    if not full:
        size = int(path.transfer.get("mss", 0)) + _TCP_HEADERS
        return _unknown(path, f"UDP is closed, and TCP uses only {size} bytes")
    return None


def _black_hole(path: Path) -> Finding:
    tried = (
        "small ones pass" if path.datagrams.get("small") else "a TCP transfer stalls after it has connected"
    )
    return _finding(path, "failed", f"packets of {path.mtu} bytes are lost on the way, {tried}")


def _smaller(path: Path, size: int) -> Finding:
    text = f"the path carries {size} bytes, the interfaces are set to {path.mtu}"
    return _finding(path, "warning", text)


def _unknown(path: Path, why: str) -> Finding:
    text = f"not known whether the path carries {path.mtu} bytes: {why}"
    return Finding(NAME, "warning", path.source.alias, path.to.alias, text)


def _finding(path: Path, status: Any, detail: str) -> Finding:
    hint = (
        f"set the switch ports between them to {path.mtu} or more, "
        f"or give both interfaces what the path carries: ip link set dev {path.source.interface} mtu 1500"
        if path.mtu > 1500
        else f"find what carries less than {path.mtu} between them (tunnel, VLAN, overlay network), "
        f"and lower the MTU of {path.source.interface} to that on all nodes"
    )
    return Finding(NAME, status, path.source.alias, path.to.alias, detail, hint)
