"""Node 0's side of the channel: it listens, keeps every other node's last state, and tells the decision."""

import json
import selectors
import socket
import time
from typing import Any, Dict, List, Optional, Set

from .channel import ChannelError, ListeningEnd
from .connection import Connection
from .decision import View
from .plan import Plan

# A connection that has not proved itself by then, or says nothing for so long, is closed.
_PROVE_LIMIT = 5.0
_SILENCE_LIMIT = 10.0
# More unproven connections than this at once are not supervisors of ours.
_MOST_UNPROVEN = 64


def significant(state: Dict[str, Any]) -> str:
    """A state without what changes all the time: two equal ones need not be told twice."""
    kept = {key: value for key, value in state.items() if key not in _VOLATILE}
    for name in ("ranks", "servers"):
        kept[name] = [
            {key: value for key, value in each.items() if key != "bytes"} for each in state.get(name, [])
        ]
    return json.dumps(kept, sort_keys=True)


_VOLATILE = ("heard_s", "clock_offset_s", "clock_error_s", "peers", "ranks", "servers")


class _Caller:
    """One connection from another node's supervisor."""

    def __init__(self, owner: "Coordinator", sock: socket.socket, key: bytes, selector: Any) -> None:
        self._owner = owner
        self.end = ListeningEnd(key)
        self.since = time.monotonic()
        self.connection = Connection(selector, sock, self._received, lambda _reason: owner.forget(self))
        self.connection.send(self.end.replies())

    def _received(self, data: bytes) -> None:
        try:
            messages = self.end.receive(data)
        except ChannelError as error:
            self.connection.close(str(error))
            return
        self.connection.send(self.end.replies())
        if messages:
            self._owner.heard(self, messages[-1])

    def tell(self, message: Dict[str, Any]) -> None:
        """Send a message unless the last ones are still on their way: only the newest decision matters."""
        if self.end.proven and self.connection.pending == 0:
            self.connection.send(self.end.message(message))


class Coordinator:
    """All other nodes as node 0 sees them. Raises OSError if the channel's port cannot be had."""

    def __init__(self, plan: Plan, key: bytes, selector: selectors.BaseSelector) -> None:
        self._plan = plan
        self._key = key
        self._selector = selector
        self._callers: Set[_Caller] = set()
        self._of_node: Dict[int, _Caller] = {}
        self._states: Dict[int, Dict[str, Any]] = {}
        self._significant: Dict[int, str] = {}
        self._heard_at: Dict[int, float] = {}
        self._decision: Dict[str, Any] = {}
        self.version = 0
        self._listener = _listen(plan.node_ip, plan.channel_port)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self, _events: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if sum(not caller.end.proven for caller in self._callers) >= _MOST_UNPROVEN:
            sock.close()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._callers.add(_Caller(self, sock, self._key, self._selector))

    def heard(self, caller: _Caller, message: Dict[str, Any]) -> None:
        """A proven message has come: keep the state, answer with the decision and the time."""
        received = time.time()
        rank = caller.end.node_rank
        if not 0 < rank < len(self._plan.nodes):
            caller.connection.close("there is no node rank %d" % rank)
            return
        before = self._of_node.get(rank)
        self._of_node[rank] = caller
        if before is not None and before is not caller:
            before.connection.close("replaced by a newer connection")
        self._heard_at[rank] = time.monotonic()
        self._states[rank] = message["state"]
        text = significant(message["state"])
        if text != self._significant.get(rank) or before is None:
            self._significant[rank] = text
            self.version += 1
        caller.tell(
            {"decision": self._decision, "echo": message["sent"], "received": received, "sent": time.time()}
        )

    def decide(self, decision: Dict[str, Any]) -> None:
        """This is the decision from now on; every node that is connected is told at once if it is new."""
        if decision != self._decision:
            self._decision = decision
            for caller in list(self._of_node.values()):
                caller.tell({"decision": decision})

    def forget(self, caller: _Caller) -> None:
        """The connection has closed."""
        self._callers.discard(caller)
        rank = caller.end.node_rank
        if self._of_node.get(rank) is caller:
            del self._of_node[rank]
            self.version += 1

    def drop_silent(self, now: float) -> None:
        """Connections that prove nothing, or say nothing any more, are closed."""
        for caller in list(self._callers):
            if caller.end.proven:
                silent = now - self._heard_at.get(caller.end.node_rank, caller.since) > _SILENCE_LIMIT
            else:
                silent = now - caller.since > _PROVE_LIMIT
            if silent:
                caller.connection.close("silent")

    def view(self, rank: int, registered: Optional[bool]) -> View:
        """Another node as node 0 knows it now."""
        alias, joined = self._plan.nodes[rank].alias, rank in self._of_node
        return View(rank, alias, joined, self._heard_at.get(rank), self._states.get(rank), registered)

    def everyone_knows(self, now: float) -> bool:
        """Every node that is not lost has said that it knows the decision."""
        phase, limit = self._decision.get("phase"), self._plan.timeouts.node
        heard = [rank for rank, heard_at in self._heard_at.items() if now - heard_at < limit]
        return all((self._states[rank].get("decision") or {}).get("phase") == phase for rank in heard)

    def close(self) -> None:
        """Nobody is listened to any more."""
        self._selector.unregister(self._listener)
        self._listener.close()
        for caller in list(self._callers):
            caller.connection.close()


def _listen(ip: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ip, port))
        listener.listen(512)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def peers_of(views: List[View], now: float) -> List[Dict[str, Any]]:
    """`peers` of node 0's state: all nodes but node 0."""
    return [
        {
            "node_rank": view.node_rank,
            "alias": view.alias,
            "heard_s": None if view.heard_at is None else round(now - view.heard_at, 3),
            "joined": view.joined,
            "registered": view.registered,
            "state": view.state,
        }
        for view in views[1:]
    ]
