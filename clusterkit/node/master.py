"""Which launchers have registered at Paddle's own meeting point, asked without blocking (node 0 only)."""

import json
import selectors
import socket
from typing import Any, List, Optional

from .connection import Connection
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


def registered_ranks(body: bytes) -> List[int]:
    """The node ranks in the server's answer: `{"/JOB/info/RANK": "{… \\"rank\\": 1 …}"}`."""
    try:
        entries = json.loads(body.decode("utf-8")).values()
        return sorted({_rank(json.loads(entry)) for entry in entries})
    except (ValueError, KeyError, AttributeError, TypeError):
        return []


def _rank(entry: Any) -> int:
    return int(entry["rank"])
