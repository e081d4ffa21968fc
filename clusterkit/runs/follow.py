"""Follow the nodes of a run: one connection a host, resumed at the byte where it was lost.

The agent's `attach` (docs/architecture.md, "Attaching") sends frames; a thread for each host reads them and
puts them into one bounded queue, so a slow reader slows the hosts down instead of filling the memory here.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterkit.errors import ClusterkitError, CommandFailed, HostError, HostTimeout, Unreachable
from clusterkit.remote.protocol import Remote, Stream
from clusterkit.runs.record import NodeRecord
from clusterkit.sync import attach_script

# The agent sends a state at least every 5 s; a connection silent for this long is given up and made anew.
SILENCE_S = 20.0
ATTACH_TIMEOUT_S = 30.0
_RETRY_S = (0.5, 1.0, 2.0, 4.0, 8.0)
_READ_SIZE = 1 << 18
_QUEUE_FRAMES = 64


@dataclass(frozen=True)
class Frame:
    """One message: `state`, `log`, `error`, `end` from a host; `unobserved`, `observed` are our own."""

    host: str
    kind: str
    header: Mapping[str, Any]
    payload: bytes = b""


class FrameReader:
    """Cut a stream's bytes into frames: a JSON line each, and `size` raw bytes where the line says so."""

    def __init__(self, stream: Stream, timeout: float) -> None:
        self._stream = stream
        self._timeout = timeout
        self._buffer = bytearray()

    def next(self) -> tuple[dict[str, Any], bytes] | None:
        """The next frame, or None at the stream's end. Raises HostTimeout, Unreachable, ValueError."""
        line = self._until_newline()
        if line is None:
            return None
        header = json.loads(line)
        if not isinstance(header, dict):
            raise ValueError("a frame is not a JSON object")
        payload = self._exactly(int(header.get("size", 0)))
        return header, payload

    def _until_newline(self) -> bytes | None:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if not self._fill():
                return None
        return self._take(end + 1)

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not self._fill():
                raise ValueError("the stream ended inside a frame")
        return self._take(size)

    def _fill(self) -> bool:
        data = self._stream.read(_READ_SIZE, self._timeout)
        self._buffer += data
        return bool(data)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


class _Host:
    """One host's side of following: its thread, its present connection, and the next byte of each file."""

    def __init__(
        self,
        node: NodeRecord,
        remote: Remote,
        verb: str,
        follow: dict[str, Any],
        wait: bool,
        silence: float,
    ) -> None:
        self.node = node
        self.remote = remote
        self.verb = verb
        self.follow = follow
        self.wait = wait
        self.silence = silence
        self.stream: Stream | None = None
        self.lock = threading.Lock()
        self.pending: list[bytes] = []

    def connect(self) -> FrameReader:
        script = attach_script(self.node.python, self.node.run_dir, self.verb)
        stream = self.remote.open(script, timeout=ATTACH_TIMEOUT_S, doing="following the run")
        request = {"follow": self.follow, "wait": self.wait}
        with self.lock:
            stream.send(json.dumps(request).encode() + b"\n" + b"".join(self.pending))
            self.pending.clear()
            self.stream = stream
        return FrameReader(stream, self.silence)

    def command(self, line: bytes, keep: bool) -> bool:
        """Send a command now; if there is no connection and `keep`, at the next one. True if it was sent."""
        with self.lock:
            if self.stream is not None:
                try:
                    self.stream.send(line)
                    return True
                except HostError:
                    self.stream = None
            if keep:
                self.pending.append(line)
        return False

    def disconnect(self) -> None:
        with self.lock:
            stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()

    def advance(self, header: Mapping[str, Any]) -> None:
        """Remember where this file's next byte is, for the request of the next connection."""
        place = {"offset": int(header["offset"]) + int(header["size"]), "attempt": header.get("attempt", 0)}
        self.follow[str(header["file"])] = place


class Following:
    """Frames of many hosts in one stream. Use as a context manager: leaving it closes every connection.

    `follow` says which logs, for each host: `{"3": {"offset": 0}, "launcher": {"offset": 0}}`. `wait=False`
    sends what is there now and ends. A lost connection is made anew until `close`, as long as `wait` is true;
    one that is silent for `silence` seconds counts as lost.
    """

    def __init__(
        self,
        nodes: Sequence[NodeRecord],
        remotes: Mapping[str, Remote],
        follow: Mapping[str, Mapping[str, Any]],
        *,
        start: bool = False,
        wait: bool = True,
        silence: float = SILENCE_S,
    ) -> None:
        verb = "start" if start else "attach"
        self._hosts = {
            node.host: _Host(node, remotes[node.host], verb, dict(follow.get(node.host, {})), wait, silence)
            for node in nodes
        }
        self._frames: queue.Queue[Frame] = queue.Queue(_QUEUE_FRAMES)
        self._closed = threading.Event()
        self._wait = wait

    def __enter__(self) -> Following:
        for host in self._hosts.values():
            threading.Thread(
                target=self._run, args=(host,), name=f"follow {host.node.host}", daemon=True
            ).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def next(self, timeout: float) -> Frame | None:
        """The next frame of any host, or None if none came within `timeout` seconds."""
        try:
            return self._frames.get(timeout=timeout)
        except queue.Empty:
            return None

    def command(self, host: str, command: Mapping[str, Any], *, keep: bool = False) -> bool:
        """Send a command to one host's supervisor; with `keep` over the next connection if need be."""
        return self._hosts[host].command(json.dumps(command).encode() + b"\n", keep)

    def command_all(self, command: Mapping[str, Any], *, keep: bool = False) -> None:
        """Send a command to every host's supervisor."""
        for host in self._hosts:
            self.command(host, command, keep=keep)

    def close(self) -> None:
        """Stop following. What runs on the hosts does not notice."""
        self._closed.set()
        for host in self._hosts.values():
            host.disconnect()

    def _run(self, host: _Host) -> None:
        tries = 0
        while not self._closed.is_set():
            try:
                reader = host.connect()
                if tries:
                    self._put(Frame(host.node.host, "observed", {}))
                tries = 0
                if self._read(host, reader):
                    return
                problem: ClusterkitError = Unreachable(
                    host.node.host, "connection", "the agent's stream ended early"
                )
            except (Unreachable, HostTimeout) as error:
                problem = error
            except CommandFailed as error:
                self._put(Frame(host.node.host, "error", {"message": error.message, "hint": error.hint}))
                return
            except (ValueError, KeyError) as error:
                problem = Unreachable(
                    host.node.host, "connection", f"the agent's stream cannot be read: {error}"
                )
            host.disconnect()
            if self._closed.is_set():
                return
            header = {"message": problem.message, "hint": problem.hint, "exit_code": int(problem.exit_code)}
            self._put(Frame(host.node.host, "unobserved", header))
            if not self._wait:
                return
            self._closed.wait(_RETRY_S[min(tries, len(_RETRY_S) - 1)])
            tries += 1

    def _read(self, host: _Host, reader: FrameReader) -> bool:
        """Pass frames on until the end frame (True) or the end of the connection (False)."""
        while (frame := reader.next()) is not None:
            header, payload = frame
            kind = str(header.get("frame"))
            if kind == "state":
                # The supervisor lives. Starting is safe to repeat until then, and never done after.
                host.verb = "attach"
            if kind == "log":
                host.advance(header)
            self._put(Frame(host.node.host, kind, header, payload))
            if kind in ("end", "error"):
                host.disconnect()
                return True
        return False

    def _put(self, frame: Frame) -> None:
        while not self._closed.is_set():
            try:
                self._frames.put(frame, timeout=0.5)
                return
            except queue.Full:
                continue


def deadline(seconds: float) -> float:
    """The monotonic time that many seconds from now."""
    return time.monotonic() + seconds
