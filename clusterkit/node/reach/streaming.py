"""One TCP stream for a short time, counted where it arrives."""

import select
import socket
import struct
import time
from typing import Any, Dict

_PIECE = b"\0" * (1 << 18)
_CONNECT_S = 3.0
# How long the other side may be late with its count.
_LATE_S = 5.0


def stream(ip: str, port: int, seconds: float, source: str, token: str) -> Dict[str, Any]:
    """`bytes` that arrived there in so many `seconds`, or an `error`."""
    try:
        sock = socket.create_connection((ip, port), _CONNECT_S, (source, 0))
    except OSError as error:
        return {"error": str(error.strerror or error)}
    try:
        return _pour(sock, seconds, token)
    except OSError as error:
        return {"error": str(error.strerror or error)}
    finally:
        # What was not taken yet is dropped, not sent to the end: on a slow line that would take long.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()


def _pour(sock: socket.socket, seconds: float, token: str) -> Dict[str, Any]:
    sock.sendall(("%s drink %.3f\n" % (token, seconds)).encode())
    sock.setblocking(False)
    end = time.monotonic() + seconds + _LATE_S
    heard = b""
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return {"error": "the other side did not say how much had arrived"}
        readable, writable, _ = select.select([sock], [sock], [], left)
        if readable:
            data = sock.recv(256)
            heard += data
            if b"\n" in heard:
                _, _, count, passed = heard.split()
                return {"bytes": int(count), "seconds": float(passed)}
            if not data:
                return {"error": "the connection was closed"}
        if writable:
            try:
                sock.send(_PIECE)
            except (BlockingIOError, InterruptedError):
                pass
