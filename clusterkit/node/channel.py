"""Messages between two supervisors over TCP, without any I/O: bytes in, messages out, and the other way.

Both sides prove that they know the run's secret before anything else is read, and every message
carries a counter and an HMAC. One frame is `length (4) | HMAC-SHA256 (32) | body`.

    listener → connector   listener's nonce
    connector → listener   node rank, connector's nonce, HMAC(key, "connector" | both nonces | rank)
    listener → connector   HMAC(key, "listener" | both nonces | rank)
    both ways              body = JSON, HMAC(session key, direction | counter | body)

The session key is HMAC(key, "session" | both nonces | rank), so nothing of one connection is
of any use in another.
"""

import hashlib
import hmac
import json
import os
import struct
from typing import Any, List, Optional

_NONCE = 32
_MAC = 32
_HELLO = b"clusterkit channel 1\n"
# A node's state with eight ranks and eight tails is some 50 kB; a node with many ranks stays far below.
_MAX_BODY = 4 * 1024 * 1024


class ChannelError(Exception):
    """The other side is not who it should be, or what it sent was changed on the way."""


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


class Channel:
    """What both ends share: framing, counters and MACs once the session key is known."""

    _sends = b""
    _receives = b""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._incoming = bytearray()
        self._session: Optional[bytes] = None
        self._sent = 0
        self._received = 0
        self._nonce = os.urandom(_NONCE)
        self._replies = b""

    @property
    def proven(self) -> bool:
        """True once the other side has proved that it knows the secret."""
        return self._session is not None

    def replies(self) -> bytes:
        """The bytes of the handshake that have to be sent now."""
        due, self._replies = self._replies, b""
        return due

    def message(self, value: Any) -> bytes:
        """`value` as the bytes to send; only after `proven`."""
        if self._session is None:
            raise ChannelError("nothing may be sent before the other side is proven")
        body = json.dumps(value, separators=(",", ":")).encode("ascii")
        if len(body) > _MAX_BODY:
            raise ChannelError("a message of %d bytes is too long" % len(body))
        mac = _mac(self._session, self._sends, struct.pack(">Q", self._sent), body)
        self._sent += 1
        return struct.pack(">I", len(body)) + mac + body

    def receive(self, data: bytes) -> List[Any]:
        """The messages that are complete with `data`. Raises ChannelError; the connection must end then."""
        self._incoming += data
        if not self.proven and not self._handshake():
            return []
        messages: List[Any] = []
        while True:
            body = self._next_body()
            if body is None:
                return messages
            try:
                messages.append(json.loads(body.decode("utf-8")))
            except ValueError:
                raise ChannelError("a proven message is not JSON")

    def _handshake(self) -> bool:
        raise NotImplementedError

    def _begin(self, nonces: bytes) -> None:
        self._session = _mac(self._key, b"session", nonces)

    def _take(self, count: int) -> Optional[bytes]:
        if len(self._incoming) < count:
            return None
        taken = bytes(self._incoming[:count])
        del self._incoming[:count]
        return taken

    def _next_body(self) -> Optional[bytes]:
        if len(self._incoming) < 4:
            return None
        length = struct.unpack(">I", bytes(self._incoming[:4]))[0]
        if length > _MAX_BODY:
            raise ChannelError("a message claims %d bytes" % length)
        frame = self._take(4 + _MAC + length)
        if frame is None:
            return None
        mac, body = frame[4 : 4 + _MAC], frame[4 + _MAC :]
        assert self._session is not None
        expected = _mac(self._session, self._receives, struct.pack(">Q", self._received), body)
        if not hmac.compare_digest(mac, expected):
            raise ChannelError("a message was changed, repeated or left out")
        self._received += 1
        return body


class ListeningEnd(Channel):
    """Node 0's end. `node_rank` is known once `proven`."""

    _sends = b"listener"
    _receives = b"connector"

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.node_rank = -1
        self._replies = _HELLO + self._nonce

    def _handshake(self) -> bool:
        data = self._take(len(_HELLO) + 4 + _NONCE + _MAC)
        if data is None:
            if not _HELLO.startswith(bytes(self._incoming[: len(_HELLO)])):
                raise ChannelError("this is not a supervisor of clusterkit")
            return False
        if not data.startswith(_HELLO):
            raise ChannelError("this is not a supervisor of clusterkit")
        rank, nonce, proof = data[len(_HELLO) : -_NONCE - _MAC], data[-_NONCE - _MAC : -_MAC], data[-_MAC:]
        nonces = self._nonce + nonce + rank
        if not hmac.compare_digest(proof, _mac(self._key, b"connector", nonces)):
            raise ChannelError("it does not know this run's secret")
        self.node_rank = struct.unpack(">I", rank)[0]
        self._replies += _mac(self._key, b"listener", nonces)
        self._begin(nonces)
        return True


class ConnectingEnd(Channel):
    """The end of every other node."""

    _sends = b"connector"
    _receives = b"listener"

    def __init__(self, key: bytes, node_rank: int) -> None:
        super().__init__(key)
        self._rank = struct.pack(">I", node_rank)
        self._nonces = b""

    def _handshake(self) -> bool:
        if not self._nonces and not self._answer():
            return False
        proof = self._take(_MAC)
        if proof is None:
            return False
        if not hmac.compare_digest(proof, _mac(self._key, b"listener", self._nonces)):
            raise ChannelError("it does not know this run's secret")
        self._begin(self._nonces)
        return True

    def _answer(self) -> bool:
        data = self._take(len(_HELLO) + _NONCE)
        if data is None:
            if not _HELLO.startswith(bytes(self._incoming[: len(_HELLO)])):
                raise ChannelError("something else listens there")
            return False
        if not data.startswith(_HELLO):
            raise ChannelError("something else listens there")
        self._nonces = data[len(_HELLO) :] + self._nonce + self._rank
        self._replies = _HELLO + self._rank + self._nonce + _mac(self._key, b"connector", self._nonces)
        return True
