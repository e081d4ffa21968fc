"""A non-blocking socket with what is still to be sent, for the supervisor's one select loop."""

import selectors
import socket
from typing import Callable, Optional

_READ_SIZE = 65536


class Connection:
    """Hands received bytes to `received`, sends without blocking, and says once that it has closed."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        sock: socket.socket,
        received: Callable[[bytes], None],
        closed: Callable[[str], None],
    ) -> None:
        self._selector = selector
        self._socket = sock
        self._received = received
        self._closed = closed
        self._outgoing = bytearray()
        self.is_open = True
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, self._ready)

    @property
    def pending(self) -> int:
        """How many bytes the other side has not taken yet."""
        return len(self._outgoing)

    def send(self, data: bytes) -> None:
        """`data` is on its way, or waits until the other side takes it."""
        if self.is_open:
            self._outgoing += data
            self._flush()

    def close(self, reason: str = "closed") -> None:
        """The socket is closed, and `closed` has been told why; later calls do nothing."""
        if self.is_open:
            self.is_open = False
            self._selector.unregister(self._socket)
            self._socket.close()
            self._closed(reason)

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if self.is_open and events & selectors.EVENT_READ:
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(reason_of(error))
            return
        if data:
            self._received(data)
        else:
            self.close("closed by the other side")

    def _flush(self) -> None:
        try:
            while self._outgoing:
                sent = self._socket.send(self._outgoing)
                del self._outgoing[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(reason_of(error))
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        self._selector.modify(self._socket, events, self._ready)


def reason_of(error: Optional[BaseException]) -> str:
    """A network error in a word or two."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.timeout):
        return "timed out (dropped)"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
