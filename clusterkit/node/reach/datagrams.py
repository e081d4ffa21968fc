"""UDP packets that nobody on the way may cut up: a small one and a large one to each host."""

import errno
import select
import socket
import time
from typing import Any, Dict, List, NamedTuple, Set, Tuple

# linux/in.h: set DF, and send whatever the path was said to carry before.
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_PROBE = 3
# IP and UDP headers.
_HEADERS = 28
_SMALL = 100
# Tries are repeated; until when the answers of each are awaited, in seconds from the start.
_TRIES_UNTIL = (0.15, 0.4, 0.7, 1.0, 1.4)
# Who has not answered a small packet by then does not let UDP in at all: there is nothing to measure.
_SMALL_BY = 0.4


class Target(NamedTuple):
    """Where to, and the size of the large packet as the link sees it (IP header included)."""

    ip: str
    port: int
    mtu: int


def send(targets: List[Target], source: str, token: str) -> List[Dict[str, Any]]:
    """For each target whether a `small` and a `large` packet were answered, and what `error` sending gave."""
    return _Exchange(targets, source, token).run()


class _Exchange:
    def __init__(self, targets: List[Target], source: str, token: str) -> None:
        self._targets = targets
        self._token = token
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        self._sock.bind((source, 0))
        self._sock.setblocking(False)
        self._missing: Set[Tuple[int, str]] = {
            (number, kind) for number in range(len(targets)) for kind in ("small", "large")
        }
        self._unanswered: Set[Tuple[int, str]] = set()
        self._errors: Dict[int, str] = {}

    def run(self) -> List[Dict[str, Any]]:
        began = time.monotonic()
        for end in _TRIES_UNTIL:
            for number, kind in sorted(self._missing):
                self._send(number, kind)
                self._hear(0.0)
            while self._missing and time.monotonic() < began + end:
                self._hear(max(0.0, began + end - time.monotonic()))
            if end >= _SMALL_BY:
                self._leave_the_silent()
        self._sock.close()
        self._unanswered |= self._missing
        return [self._result(number) for number in range(len(self._targets))]

    def _send(self, number: int, kind: str) -> None:
        target = self._targets[number]
        head = ("%s %d %s " % (self._token, number, kind)).encode()
        size = _SMALL if kind == "small" else target.mtu - _HEADERS
        try:
            self._sock.sendto(head.ljust(size, b"."), (target.ip, target.port))
        except OSError as error:
            self._errors[number] = "too large" if error.errno == errno.EMSGSIZE else str(error.strerror)

    def _hear(self, limit: float) -> None:
        ready, _, _ = select.select([self._sock], [], [], limit)
        while ready:
            try:
                data, _ = self._sock.recvfrom(2048)
            except OSError:
                return
            words = data.decode("ascii", "replace").split()
            if len(words) >= 3 and words[0] == self._token and words[1].isdigit():
                self._missing.discard((int(words[1]), words[2]))

    def _leave_the_silent(self) -> None:
        silent = {number for number, kind in self._missing if kind == "small"}
        self._unanswered |= {entry for entry in self._missing if entry[0] in silent}
        self._missing -= self._unanswered

    def _result(self, number: int) -> Dict[str, Any]:
        return {
            "small": (number, "small") not in self._unanswered,
            "large": (number, "large") not in self._unanswered,
            "error": self._errors.get(number, ""),
        }


def targets(entries: List[List[Any]]) -> List[Target]:
    """Targets as they come in JSON."""
    return [Target(str(ip), int(port), int(mtu)) for ip, port, mtu in entries]
