"""Many connections at once: who answers, who refuses, who is silent, and who is silent after a while."""

import collections
import errno
import os
import selectors
import socket
import time
from typing import Any, Deque, Dict, List, NamedTuple

from .kernel import absent_neighbours, tcp_info

# Also what a plain login may have open at once, with room for those who come to us.
AT_ONCE = 300


class Target(NamedTuple):
    """Whom to visit; with `size` that many bytes are sent and must be acknowledged by the listener itself."""

    alias: str
    ip: str
    port: int
    size: int = 0


def connect(targets: List[Target], source: str, token: str, timeout: float) -> List[Dict[str, Any]]:
    """How each connection went, in the order of the targets.

    `outcome`: `open`; `refused`; `silent` (no answer to the request within `timeout` seconds); `stalled`
    (connected, then no answer); `absent` (no machine has that address); `error` with `detail`; `stranger`
    (somebody else answered). With `seconds`, and what the kernel knows of it.
    """
    wave = _Wave(source, token, timeout)
    return wave.run(targets)


class _Attempt:
    """One connection under way."""

    def __init__(self, number: int, target: Target) -> None:
        self.number = number
        self.target = target
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.began = time.monotonic()
        self.connected = False
        self.heard = b""
        self.to_send = b""


class _Wave:
    def __init__(self, source: str, token: str, timeout: float) -> None:
        self._source = source
        self._token = token
        self._timeout = timeout
        self._selector = selectors.DefaultSelector()
        self._going: Dict[int, _Attempt] = {}
        # All have the same limit, so who began first runs out of it first.
        self._order: Deque[_Attempt] = collections.deque()
        self._results: Dict[int, Dict[str, Any]] = {}

    def run(self, targets: List[Target]) -> List[Dict[str, Any]]:
        waiting = collections.deque(enumerate(targets))
        while waiting or self._going:
            while waiting and len(self._going) < AT_ONCE:
                self._begin(*waiting.popleft())
            if not self._going:
                continue  # They failed at once.
            left = self._order[0].began + self._timeout - time.monotonic()
            for key, events in self._selector.select(max(0.0, left)):
                if key.data.number in self._going:
                    self._go_on(key.data, events)
            self._give_up_late_ones()
        self._selector.close()
        self._name_the_absent(targets)
        return [self._results[number] for number in range(len(targets))]

    def _name_the_absent(self, targets: List[Target]) -> None:
        failed = [number for number, result in self._results.items() if result["outcome"] != "open"]
        absent = absent_neighbours() if failed else set()
        for number in failed:
            if targets[number].ip in absent:
                self._results[number]["outcome"] = "absent"

    def _begin(self, number: int, target: Target) -> None:
        attempt = _Attempt(number, target)
        attempt.sock.setblocking(False)
        self._going[number] = attempt
        self._order.append(attempt)
        try:
            attempt.sock.bind((self._source, 0))
            code = attempt.sock.connect_ex((target.ip, target.port))
        except OSError as error:
            code = error.errno or errno.EIO
        if code not in (0, errno.EINPROGRESS):
            self._failed(attempt, code)
            return
        self._selector.register(attempt.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, attempt)

    def _go_on(self, attempt: _Attempt, events: int) -> None:
        if not attempt.connected:
            code = attempt.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._failed(attempt, code)
                return
            attempt.connected = True
            size = attempt.target.size
            words = "%s take %d\n" % (self._token, size) if size else "%s hello\n" % self._token
            attempt.to_send = words.encode() + b"\0" * size
        try:
            if attempt.to_send and events & selectors.EVENT_WRITE:
                attempt.to_send = attempt.to_send[attempt.sock.send(attempt.to_send) :]
                if not attempt.to_send:
                    self._selector.modify(attempt.sock, selectors.EVENT_READ, attempt)
            if events & selectors.EVENT_READ:
                self._hear(attempt)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._end(attempt, "stalled", os.strerror(error.errno or errno.EIO))

    def _hear(self, attempt: _Attempt) -> None:
        data = attempt.sock.recv(256)
        attempt.heard += data
        if data and b"\n" not in attempt.heard:
            return
        words = attempt.heard.decode("utf-8", "replace").split()
        if words[:2] == [self._token, attempt.target.alias]:
            self._end(attempt, "open", "")
        else:
            self._end(attempt, "stranger", words[1] if words[:1] == [self._token] and words[1:] else "")

    def _failed(self, attempt: _Attempt, code: int) -> None:
        if code == errno.ECONNREFUSED:
            self._end(attempt, "refused", "")
        elif code == errno.ETIMEDOUT:
            self._end(attempt, "silent", "")
        else:
            self._end(attempt, "error", os.strerror(code))

    def _give_up_late_ones(self) -> None:
        now = time.monotonic()
        while self._order and (
            self._order[0].number not in self._going or now - self._order[0].began >= self._timeout
        ):
            attempt = self._order.popleft()
            if attempt.number in self._going:
                self._end(attempt, "stalled" if attempt.connected else "silent", "")

    def _end(self, attempt: _Attempt, outcome: str, detail: str) -> None:
        del self._going[attempt.number]
        seconds = time.monotonic() - attempt.began
        result: Dict[str, Any] = {"outcome": outcome, "detail": detail, "seconds": round(seconds, 4)}
        if attempt.connected:
            result.update(tcp_info(attempt.sock))
        self._results[attempt.number] = result
        try:
            self._selector.unregister(attempt.sock)
        except KeyError:
            pass  # It had failed before anybody waited for it.
        attempt.sock.close()


def targets(entries: List[List[Any]]) -> List[Target]:
    """Targets as they come in JSON."""
    return [Target(str(alias), str(ip), int(port), int(size)) for alias, ip, port, size in entries]
