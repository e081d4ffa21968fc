"""The channel as every node but node 0 sees it: it connects, says its state, and hears the decision."""

import errno
import os
import selectors
import socket
import time
from typing import Any, Callable, Dict, Optional

from .channel import ChannelError, ConnectingEnd
from .clock import ClockOffset
from .connection import Connection, reason_of
from .plan import Plan

CONNECT_LIMIT = 2.0
# A connection on which node 0 does not answer for this long is replaced.
SILENCE_LIMIT = 3.0
_RETRY_AFTER = 0.5
_EVERY = 1.0
# The first messages follow each other quickly, so that the clock offset is known before the start.
_BURST = 6
_BURST_EVERY = 0.05


class Peer:
    """The connection to node 0, always being made again. `problem` says why there is none."""

    def __init__(
        self, plan: Plan, key: bytes, selector: selectors.BaseSelector, state: Callable[[], Dict[str, Any]]
    ) -> None:
        self._plan = plan
        self._key = key
        self._selector = selector
        self._state = state
        self._server = (plan.nodes[0].node_ip, plan.channel_port)
        self._connecting: Optional[socket.socket] = None
        self._connection: Optional[Connection] = None
        self._end: Optional[ConnectingEnd] = None
        self._since = time.monotonic()
        self._try_at = self._since
        self._sent_at = 0.0
        self.clock = ClockOffset()
        self.decision: Optional[Dict[str, Any]] = None
        self.heard_at: Optional[float] = None
        self.problem: Optional[str] = None
        self.problem_since: Optional[float] = None

    @property
    def is_connected(self) -> bool:
        """True while node 0 has proved itself on an open connection."""
        return self._connection is not None and self._end is not None and self._end.proven

    def step(self, now: float) -> None:
        """Do what is due: connect, give up on a silent connection, say the state again."""
        if self._connecting is not None:
            if now - self._since > CONNECT_LIMIT:
                self._failed("timed out (dropped)", now)
        elif self._connection is not None:
            if now - max(self._since, self.heard_at or 0.0) > SILENCE_LIMIT:
                self._connection.close("silent for %g s" % SILENCE_LIMIT)
            elif self.is_connected and now - self._sent_at >= self._pace():
                self.say(now)
        elif now >= self._try_at:
            self._connect(now)

    def _pace(self) -> float:
        return _BURST_EVERY if self.clock.count < _BURST else _EVERY

    def say(self, now: float) -> None:
        """Node 0 is told the state as it is now, if it takes it."""
        if self._connection is None or self._end is None or not self._end.proven or self._connection.pending:
            return
        self._sent_at = now
        self._connection.send(self._end.message({"state": self._state(), "sent": time.time()}))

    def _connect(self, now: float) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            # The firewall of node 0 knows us by this address.
            sock.bind((self._plan.node_ip, 0))
            code = sock.connect_ex(self._server)
        except OSError as error:
            sock.close()
            self._failed(
                "%s is not an address of this host (%s)" % (self._plan.node_ip, reason_of(error)), now
            )
            return
        self._since = now
        self._connecting = sock
        if code not in (0, errno.EINPROGRESS):
            self._failed(reason_of(OSError(code, os.strerror(code))), now)
            return
        self._selector.register(sock, selectors.EVENT_WRITE, self._connected)

    def _connected(self, _events: int) -> None:
        sock, now = self._connecting, time.monotonic()
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._failed(reason_of(OSError(code, os.strerror(code))), now)
            return
        self._selector.unregister(sock)
        self._connecting = None
        self._since = now
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._end = ConnectingEnd(self._key, self._plan.node_rank)
        self._connection = Connection(self._selector, sock, self._received, self._closed)

    def _failed(self, reason: str, now: float) -> None:
        if self._connecting is not None:
            if self._connecting.fileno() in self._selector.get_map():
                self._selector.unregister(self._connecting)
            self._connecting.close()
            self._connecting = None
        self.problem = "%s:%d: %s" % (self._server + (reason,))
        self.problem_since = self.problem_since or time.time()
        self._try_at = now + _RETRY_AFTER

    def _received(self, data: bytes) -> None:
        connection, end = self._connection, self._end
        assert connection is not None
        assert end is not None
        was_proven = end.proven
        try:
            messages = end.receive(data)
        except ChannelError as error:
            connection.close(str(error))
            return
        connection.send(end.replies())
        if end.proven and not was_proven:
            self.problem = self.problem_since = None
            self.say(time.monotonic())
        for message in messages:
            self._heard(message)

    def _heard(self, message: Dict[str, Any]) -> None:
        received = time.time()
        self.heard_at = time.monotonic()
        if message["decision"]:
            self.decision = message["decision"]
        if "echo" in message:
            self.clock.add(message["echo"], message["received"], message["sent"], received)

    def _closed(self, reason: str) -> None:
        unproven = self._end is not None and not self._end.proven
        self._connection = None
        self._end = None
        if unproven and reason == "closed by the other side":
            reason = "it closed the connection before it proved itself (another run's supervisor?)"
        self._failed(reason, time.monotonic())

    def close(self) -> None:
        """There is no connection any more."""
        if self._connection is not None:
            self._connection.close()
        elif self._connecting is not None:
            self._failed("closed", time.monotonic())
