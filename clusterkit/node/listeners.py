"""Who holds a port, so that "address in use" can be followed by a name."""

import os
import socket
import struct
from typing import Optional, Set

_LISTEN = "0A"


def who_listens(ip: str, port: int) -> str:
    """ " (held by pid 4711, python3 …)" for an error message; "" if nobody, or nobody we may see, listens."""
    inodes = _listening_inodes(ip, port)
    if not inodes:
        return ""
    pid = _holder(inodes)
    if pid is None:
        return " (held by a process of another user)"
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            command = file.read(300).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        command = ""
    return " (held by pid %d: %s)" % (pid, command[:120])


def _listening_inodes(ip: str, port: int) -> Set[str]:
    ours = {struct.pack("=I", struct.unpack(">I", socket.inet_aton(ip))[0]), b"\0\0\0\0"}
    found: Set[str] = set()
    try:
        with open("/proc/net/tcp") as file:
            lines = file.readlines()[1:]
    except OSError:
        return found
    for line in lines:
        fields = line.split()
        address, hex_port = fields[1].split(":")
        # The kernel prints the address as a number of the machine's own byte order.
        raw = struct.pack(">I", socket.ntohl(int(address, 16)))
        if (
            fields[3] == _LISTEN
            and int(hex_port, 16) == port
            and (raw == socket.inet_aton(ip) or raw in ours)
        ):
            found.add(fields[9])
    return found


def _holder(inodes: Set[str]) -> Optional[int]:
    links = {"socket:[%s]" % inode for inode in inodes}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            for file in os.listdir("/proc/%s/fd" % name):
                if os.readlink("/proc/%s/fd/%s" % (name, file)) in links:
                    return int(name)
        except OSError:
            continue
    return None
