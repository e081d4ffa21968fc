"""The thread that listens: TCP visitors say what they came for, datagrams are answered by their first bytes.

A visitor's first line is `TOKEN hello`, `TOKEN take BYTES` (read that many, then answer) or
`TOKEN drink SECONDS` (read for that long, then answer with bytes and seconds). The answer is `TOKEN ALIAS …`.
Whoever does not know the token gets no answer at all.
"""

import selectors
import socket
import threading
import time
from typing import Any, Dict, List, Optional

HEAD = 64
_LINE_LIMIT = 200
_IDLE_S = 60.0
_BACKLOG = 1024
_TICK_S = 0.1
_PIECE = 1 << 20


class Answering(threading.Thread):
    """Answers on `ip`, as `alias`, to those who know `token`, until the process ends."""

    def __init__(self, ip: str, alias: str, token: str) -> None:
        super().__init__(name="answering", daemon=True)
        self.ip = ip
        self._alias = alias
        self._token = token.encode()
        self._selector = selectors.DefaultSelector()
        self._visitors: Dict[int, _Visitor] = {}
        self._room = memoryview(bytearray(_PIECE))
        self.datagram_port = 0

    def listen(self, first: int, last: int) -> int:
        """The first port of first … last that is free here, and is listened on now. Raises OSError."""
        problem: Optional[OSError] = None
        for port in range(first, last + 1):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((self.ip, port))
                listener.listen(_BACKLOG)
            except OSError as error:
                listener.close()
                problem = error
                continue
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, self._welcome)
            return int(listener.getsockname()[1])
        raise problem or OSError("no port to listen on")

    def listen_for_datagrams(self) -> int:
        """A UDP port that the kernel chose."""
        answering = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        answering.bind((self.ip, 0))
        answering.setblocking(False)
        self._selector.register(answering, selectors.EVENT_READ, self._echo)
        return int(answering.getsockname()[1])

    def run(self) -> None:
        """Answer for ever."""
        while True:
            for key, _ in self._selector.select(_TICK_S if self._visitors else None):
                key.data(key.fileobj)
            if self._visitors:
                now = time.monotonic()
                for visitor in list(self._visitors.values()):
                    visitor.look(now)
                    if visitor.ended:
                        self._say_farewell(visitor)

    def _welcome(self, listener: Any) -> None:
        """Take all who wait: hundreds of hosts may come in one moment."""
        while True:
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:
                time.sleep(0.01)  # Too many open files: those who leave make room.
                return
            sock.setblocking(False)
            visitor = _Visitor(sock, self._token, self._alias, self._room)
            self._visitors[sock.fileno()] = visitor
            self._selector.register(sock, selectors.EVENT_READ, self._hear)
            self._hear(sock)

    def _hear(self, sock: Any) -> None:
        visitor = self._visitors[sock.fileno()]
        visitor.hear()
        if visitor.ended:
            self._say_farewell(visitor)

    def _say_farewell(self, visitor: "_Visitor") -> None:
        del self._visitors[visitor.sock.fileno()]
        self._selector.unregister(visitor.sock)
        visitor.sock.close()

    def _echo(self, sock: Any) -> None:
        for _ in range(256):
            try:
                data, sender = sock.recvfrom(65536)
            except OSError:
                return
            if data.startswith(self._token):
                try:
                    sock.sendto(data[:HEAD], sender)
                except OSError:
                    pass


class _Visitor:
    """One connection from another host."""

    def __init__(self, sock: socket.socket, token: bytes, alias: str, room: memoryview) -> None:
        self.sock = sock
        self.ended = False
        self._token = token
        self._alias = alias
        self._room = room
        self._line = b""
        self._words: List[bytes] = []
        self._count = 0
        self._began = time.monotonic()
        self._answered = False

    def hear(self) -> None:
        """Take what is there."""
        try:
            size = self.sock.recv_into(self._room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            size = 0
        if not size:
            self.ended = True
        elif self._words:
            self._take(size)
        else:
            self._greet(bytes(self._room[:size]))

    def look(self, now: float) -> None:
        """Heed the time."""
        if self._words and self._words[1] == b"drink" and not self._answered:
            self._drunk(now)
        if now - self._began > _IDLE_S:
            self.ended = True

    def _greet(self, data: bytes) -> None:
        line, newline, rest = (self._line + data).partition(b"\n")
        if not newline:
            self._line = line
            self.ended = len(line) > _LINE_LIMIT
            return
        words = line.split()
        if len(words) < 2 or words[0] != self._token:
            self.ended = True
            return
        self._words = words
        self._began = time.monotonic()
        if words[1] == b"hello":
            self._answer("")
        else:
            self._take(len(rest))

    def _take(self, size: int) -> None:
        self._count += size
        if self._answered:
            return
        if self._words[1] == b"take" and self._count >= int(self._words[2]):
            self._answer("%d" % self._count)
        elif self._words[1] == b"drink":
            self._drunk(time.monotonic())

    def _drunk(self, now: float) -> None:
        passed = now - self._began
        if passed >= float(self._words[2]):
            self._answer("%d %.6f" % (self._count, passed))

    def _answer(self, words: str) -> None:
        self._answered = True
        try:
            self.sock.send(self._token + (" %s %s\n" % (self._alias, words)).encode())
        except OSError:
            self.ended = True
