"""The supervisor's local socket: who may ask, what is asked, and how states are pushed.

The name is abstract, so that it goes with the process and everybody can see in /proc/net/unix which
port window a live run on this host has reserved: `@clusterkit/RUN_ID/NODE_RANK/FIRST-LAST`.
One JSON line a message. Asked: `{"ask": "state"}` (one state), `{"ask": "watch"}` (states from now on),
`{"command": "go" | "keep" | "stop", …}`. Answered: `{"state": …}`.
"""

import errno
import json
import os
import selectors
import socket
import struct
import time
from typing import Any, Callable, Dict, List, Optional, Set

from .connection import Connection
from .plan import Plan

_MOST_CLIENTS = 64
_LONGEST_LINE = 65536
# What the kernel says about the other end of a unix socket: pid, uid, gid.
_CREDENTIALS = struct.Struct("3i")


class ControlError(Exception):
    """The supervisor cannot be asked, or somebody else answers in its place."""


def address(plan: Plan) -> str:
    """The name of the socket of this node's supervisor."""
    return "\0clusterkit/%s/%d/%d-%d" % ((plan.run_id, plan.node_rank) + plan.port_window)


def uid_of_peer(sock: socket.socket) -> int:
    """The user that the process at the other end runs as."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def _is_trusted(sock: socket.socket) -> bool:
    return uid_of_peer(sock) in (os.geteuid(), 0)


class _Client:
    """One connection to the control socket."""

    def __init__(
        self, server: "ControlServer", sock: socket.socket, selector: selectors.BaseSelector
    ) -> None:
        self._server = server
        self._line = b""
        self.watches = False
        self.behind = False
        self.connection = Connection(selector, sock, self._received, lambda _reason: server.forget(self))

    def _received(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _LONGEST_LINE:
            self.connection.close("a line that never ends")
            return
        for line in lines:
            self._server.asked(self, line)

    def push(self, data: bytes) -> None:
        """Send a state unless the last one is still on its way: only the newest matters."""
        self.behind = self.connection.pending > 0
        if not self.behind:
            self.connection.send(data)


class ControlServer:
    """Answers with `state()`, hands commands to `command`. Raises ControlError if another one runs."""

    def __init__(
        self,
        plan: Plan,
        selector: selectors.BaseSelector,
        state: Callable[[], Dict[str, Any]],
        command: Callable[[Dict[str, Any]], None],
    ) -> None:
        self._selector = selector
        self._state = state
        self._command = command
        self._clients: Set[_Client] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(address(plan))
        except OSError as error:
            self._listener.close()
            if error.errno == errno.EADDRINUSE:
                raise ControlError("a supervisor of this run and node is running already")
            raise
        self._listener.listen(16)
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self, _events: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if len(self._clients) >= _MOST_CLIENTS or not _is_trusted(sock):
            sock.close()
            return
        self._clients.add(_Client(self, sock, self._selector))

    def asked(self, client: _Client, line: bytes) -> None:
        """Serve one line of a client; what is not understood ends the connection."""
        try:
            request = json.loads(line.decode("utf-8"))
            if "command" in request:
                self._command(request)
            elif request["ask"] in ("state", "watch"):
                client.watches = request["ask"] == "watch"
                client.connection.send(self._line())
            else:
                client.connection.close("not understood")
        except (ValueError, KeyError, TypeError, AttributeError):
            client.connection.close("not understood")

    def _line(self) -> bytes:
        return json.dumps({"state": self._state()}, separators=(",", ":")).encode("ascii") + b"\n"

    def push(self) -> None:
        """Everybody who watches gets the state as it is now."""
        watching = [client for client in self._clients if client.watches]
        if watching:
            line = self._line()
            for client in watching:
                client.push(line)

    def catch_up(self) -> None:
        """Those who were too slow for a state get the newest once they have taken the last."""
        for client in [client for client in self._clients if client.behind]:
            client.push(self._line())

    def forget(self, client: _Client) -> None:
        """The client has gone."""
        self._clients.discard(client)

    def close(self, limit: float) -> None:
        """No more clients; what is on its way is sent, for at most `limit` seconds."""
        self._selector.unregister(self._listener)
        self._listener.close()
        end = time.monotonic() + limit
        while time.monotonic() < end and any(client.connection.pending for client in self._clients):
            for key, events in self._selector.select(0.05):
                key.data(events)
        for client in list(self._clients):
            client.connection.close()


def connect(plan: Plan, timeout: float) -> socket.socket:
    """A connection to this node's supervisor. Raises ControlError if there is none, or it is not ours."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        sock.connect(address(plan))
        trusted = _is_trusted(sock)
    except OSError as error:
        sock.close()
        raise ControlError("no supervisor answers: %s" % error)
    if not trusted:
        sock.close()
        raise ControlError("another user's process listens in the supervisor's place")
    return sock


def ask(plan: Plan, request: Dict[str, Any], timeout: float) -> Dict[str, Any]:
    """Send one command or question; the state after it. Raises ControlError after `timeout` seconds."""
    sock = connect(plan, timeout)
    lines: List[Dict[str, Any]] = []
    if "command" in request:
        lines.append(request)
    lines.append({"ask": "state"})
    try:
        sock.sendall(b"".join(json.dumps(line).encode("ascii") + b"\n" for line in lines))
        answer = _read_line(sock, time.monotonic() + timeout)
    except (OSError, ValueError) as error:
        raise ControlError("the supervisor does not answer: %s" % error)
    finally:
        sock.close()
    state = json.loads(answer.decode("utf-8"))["state"]
    assert isinstance(state, dict)
    return state


def _read_line(sock: socket.socket, end: float) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        sock.settimeout(max(0.01, end - time.monotonic()))
        data = sock.recv(65536)
        if not data:
            raise ValueError("it closed the connection")
        line += data
    return line


def state_of(plan: Plan, timeout: float = 2.0) -> Optional[Dict[str, Any]]:
    """The supervisor's state, None if none answers within `timeout` seconds."""
    try:
        return ask(plan, {"ask": "state"}, timeout)
    except ControlError:
        return None
