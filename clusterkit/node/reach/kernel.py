"""What the kernel knows of a TCP connection, and which connections it has half open."""

import socket
import struct
from typing import Dict, List, Set, Tuple

_SYN_RECEIVED = "03"
# struct tcp_info of linux/tcp.h: 8 bytes, then 32-bit numbers, of which these.
_TCP_INFO = 104
_FIELDS = {"mss": 2, "unacked": 4, "path_mtu": 13, "round_trip_us": 15, "resent": 23}


def tcp_info(sock: socket.socket) -> Dict[str, int]:
    """`mss` and `path_mtu` in bytes, `round_trip_us`, segments `unacked` and `resent`; {} where unknown."""
    try:
        raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO)
    except (OSError, AttributeError):
        return {}
    if len(raw) < _TCP_INFO:
        return {}
    numbers = struct.unpack_from("=24I", raw, 8)
    return {name: numbers[at] for name, at in _FIELDS.items()}


def half_open() -> List[Tuple[str, int]]:
    """Peers (address, our port) whose request has arrived here and who have not taken our answer."""
    found: List[Tuple[str, int]] = []
    try:
        with open("/proc/net/tcp") as file:
            lines = file.readlines()[1:]
    except OSError:
        return found
    for line in lines:
        fields = line.split()
        if fields[3] == _SYN_RECEIVED:
            found.append((_address(fields[2]), int(fields[1].rpartition(":")[2], 16)))
    return found


def absent_neighbours() -> Set[str]:
    """Addresses of this host's own networks for which no machine has answered."""
    try:
        with open("/proc/net/arp") as file:
            entries = [line.split() for line in file.readlines()[1:]]
    except OSError:
        return set()
    return {fields[0] for fields in entries if int(fields[2], 16) == 0}


def _address(text: str) -> str:
    """The kernel prints an address as a number of the machine's own byte order."""
    return socket.inet_ntoa(struct.pack("=I", int(text.partition(":")[0], 16)))
