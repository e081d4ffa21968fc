"""One host's side of the proof: the program there, asked one thing after the other over one stream."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from clusterkit.errors import CommandFailed, HostTimeout, Unreachable
from clusterkit.remote.protocol import Remote, Stream

DOING = "the proof between the hosts"
OPEN_TIMEOUT_S = 30.0
# The program ends itself if nobody asks it anything for so long: a cut connection leaves it alone.
ABANDONED_S = 120
_END_S = 5.0
_READ_SIZE = 1 << 18


class Conversation:
    """The program runs on the host from `begin` to `close`. Not for several threads at once."""

    def __init__(self, remote: Remote, stream: Stream) -> None:
        self._remote = remote
        self._stream = stream
        self._rest = b""

    @classmethod
    def begin(cls, remote: Remote, script: str, program: bytes) -> Conversation:
        """The program has been sent. Raises Unreachable, HostTimeout, CommandFailed if it cannot run."""
        made = cls(remote, remote.open(script, timeout=OPEN_TIMEOUT_S, doing=DOING))
        try:
            made._send(program)
        except BaseException:
            made.close()
            raise
        return made

    def ask(self, do: str, limit: float, **arguments: Any) -> Mapping[str, Any]:
        """The program's answer. Raises CommandFailed if it has ended, HostTimeout after `limit` seconds."""
        request = {"do": do, "limit": ABANDONED_S, **arguments}
        self._send(json.dumps(request).encode() + b"\n")
        answer = json.loads(self._line(time.monotonic() + limit, limit))
        assert isinstance(answer, dict)
        return answer

    def close(self) -> None:
        """The program ends."""
        self._stream.finish()
        self._stream.close()

    def _send(self, data: bytes) -> None:
        try:
            self._stream.send(data)
        except Unreachable:
            # A program that has ended reads no more. A connection that is lost says so here as well.
            raise self._ended() from None

    def _line(self, end: float, limit: float) -> bytes:
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0:
                raise HostTimeout(self._remote.alias, f"{DOING}: no answer within {limit:g} s")
            data = self._stream.read(_READ_SIZE, left)
            if not data:
                raise self._ended()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self) -> CommandFailed:
        result = self._stream.wait(_END_S)
        said = result.last_lines(1) or f"exit status {result.status}"
        return CommandFailed(
            self._remote.alias,
            f"{DOING} cannot run here: {said}",
            "it needs Python 3.6 or newer on the host: write python=… in the inventory",
        )
