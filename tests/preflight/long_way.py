"""A long way from this host to some others: packets to them wait in a TUN device before they leave.

Kernels may lack netem, which would do it. Routes to these addresses lead to the device, and what is read from
it goes out by the real interface that much later. Nothing else passes here; answers are as fast as ever.

    long_way.py SECONDS INTERFACE SOURCE ADDRESS…
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

# linux/if_tun.h
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_DEVICE, _PACKET = "longway", 65536


def main(seconds: float, interface: str, source: str, addresses: list[str]) -> None:
    """Until it is killed; the kernel then takes the device with its routes."""
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH14x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    # An answer does not come by the way that we would go.
    for name in ("all", interface):
        Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")
    _ip("link", "set", _DEVICE, "up")
    for address in addresses:
        _ip("route", "add", address, "dev", _DEVICE, "src", source)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as out:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        print("ready", flush=True)
        _carry(tun, out, seconds)


def _carry(tun: int, out: socket.socket, seconds: float) -> None:
    under_way: deque[tuple[float, bytes]] = deque()
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        if select.select([tun], [], [], wait)[0]:
            under_way.append((time.monotonic() + seconds, os.read(tun, _PACKET)))
        while under_way and under_way[0][0] <= time.monotonic():
            packet = under_way.popleft()[1]
            # IPv6 has words to say on every device.
            if packet[0] >> 4 == 4:
                with contextlib.suppress(OSError):
                    out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
