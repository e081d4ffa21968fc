"""Paddle's own meeting point: which launchers have come (node 0), and can it be reached (the others)?"""

import errno
import json
import os
import selectors
import socket
import time
from typing import Any, List, Optional

from .connection import Connection, reason_of
from .plan import Plan

_EVERY = 2.0
_LIMIT = 2.0
_LONGEST = 4 * 1024 * 1024


class MasterQuery:
    """`registered` are the node ranks that Paddle's key/value server knows; None before the first answer.

    The launcher of node 0 serves HTTP on the master port; `GET /JOB_ID/info` lists who has come
    (paddle/distributed/launch/controllers/master.py and utils/kv_server.py).
    """

    def __init__(self, plan: Plan, selector: selectors.BaseSelector) -> None:
        self._plan = plan
        self._selector = selector
        self._connection: Optional[Connection] = None
        self._answer = b""
        self._asked_at = 0.0
        self.registered: Optional[List[int]] = None

    def step(self, now: float) -> None:
        """Ask again if it is time, until everybody has registered."""
        if self._connection is not None:
            if now - self._asked_at > _LIMIT:
                self._connection.close("no answer")
        elif now - self._asked_at > _EVERY and not self._complete():
            self._asked_at = now
            self._ask()

    def close(self) -> None:
        """No question is under way."""
        if self._connection is not None:
            self._connection.close("closed")

    def _complete(self) -> bool:
        nodes = len(self._plan.nodes)
        return nodes < 2 or (self.registered is not None and len(self.registered) == nodes)

    def _ask(self) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.settimeout(0.2)  # Our own address: it answers or refuses at once.
        try:
            sock.connect((self._plan.node_ip, self._plan.master_port))
        except OSError:
            sock.close()
            return
        self._answer = b""
        self._connection = Connection(self._selector, sock, self._received, self._closed)
        request = "GET /%s/info HTTP/1.0\r\nHost: %s\r\n\r\n" % (self._plan.job_id, self._plan.node_ip)
        self._connection.send(request.encode("ascii"))

    def _received(self, data: bytes) -> None:
        self._answer += data
        if len(self._answer) > _LONGEST and self._connection is not None:
            self._connection.close("an answer that never ends")

    def _closed(self, _reason: str) -> None:
        self._connection = None
        head, _, body = self._answer.partition(b"\r\n\r\n")
        if b" 200 " in head[:20]:
            ranks = registered_ranks(body)
            self.registered = ranks if ranks else self.registered


class MasterReach:
    """`problem` says why this host cannot connect to the meeting point; None if it can, and before a try.

    A launcher that cannot reach it says "master not ready" for ever and never why.
    """

    def __init__(self, plan: Plan, selector: selectors.BaseSelector) -> None:
        self._server = (plan.nodes[0].node_ip, plan.master_port)
        self._selector = selector
        self._socket: Optional[socket.socket] = None
        self._tried_at = time.monotonic()
        self.problem: Optional[str] = None

    def step(self, now: float) -> None:
        """Try again if it is time; give a try up that nobody answers."""
        if self._socket is None:
            if now - self._tried_at > _EVERY:
                self._tried_at = now
                self._try()
        elif now - self._tried_at > _LIMIT:
            self._end(errno.ETIMEDOUT)

    def _try(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        code = self._socket.connect_ex(self._server)
        if code not in (0, errno.EINPROGRESS):
            self._end(code)
            return
        self._selector.register(self._socket, selectors.EVENT_WRITE, self._answered)

    def _answered(self, _events: int) -> None:
        assert self._socket is not None
        self._end(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _end(self, code: int) -> None:
        self.close()
        error = socket.timeout() if code == errno.ETIMEDOUT else OSError(code, os.strerror(code))
        why = reason_of(error)
        self.problem = "%s:%d: %s" % (self._server + (why,)) if code else None

    def close(self) -> None:
        """No try is under way."""
        if self._socket is not None:
            if self._socket.fileno() in self._selector.get_map():
                self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None


def free_port(plan: Plan) -> int:
    """The planned master port, or where something holds it another one of the run's window that is free."""
    first, last = plan.port_window
    others = [
        port for port in range(last, first - 1, -1) if port not in (plan.channel_port, plan.master_port)
    ]
    for port in [plan.master_port] + others:
        if _is_free(port):
            return port
    return plan.master_port  # The launcher will say that it is in use.


def _is_free(port: int) -> bool:
    """As Paddle's launcher binds it: on all addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
            sock.listen(1)
        except OSError:
            return False
    return True


def registered_ranks(body: bytes) -> List[int]:
    """The node ranks in the server's answer: `{"/JOB/info/RANK": "{… \\"rank\\": 1 …}"}`."""
    try:
        entries = json.loads(body.decode("utf-8")).values()
        return sorted({_rank(json.loads(entry)) for entry in entries})
    except (ValueError, KeyError, AttributeError, TypeError):
        return []


def _rank(entry: Any) -> int:
    return int(entry["rank"])
