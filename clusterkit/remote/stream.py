"""The Stream of protocol.py over a shell."""

from __future__ import annotations

import contextlib
import threading
import time

from clusterkit.errors import HostTimeout, Unreachable
from clusterkit.remote.frames import Frame
from clusterkit.remote.protocol import Result
from clusterkit.remote.shell import STDERR_KEPT, Chunk, Shell, ShellGone

# A child in the background may hold the outputs open; once the program itself has ended we wait no longer.
_DRAIN_S = 1.0


class ShellStream:
    """A program's raw stdin and stdout; of its stderr the end is kept."""

    def __init__(self, alias: str, named: str, doing: str, shell: Shell, out: Frame, err: Frame) -> None:
        self._alias, self._named, self._doing = alias, named, doing
        self._shell = shell
        self._reading = threading.Lock()
        self._rest = memoryview(bytes(out.data))
        self._err = err
        self._ended = False

    def send(self, data: bytes) -> None:
        """See protocol.Stream."""
        try:
            self._shell.send(data)
        except ShellGone as gone:
            raise self._lost(str(gone)) from gone
        except BrokenPipeError as error:
            raise self._lost("the program there reads no more") from error

    def finish(self) -> None:
        """See protocol.Stream."""
        with contextlib.suppress(ShellGone, BrokenPipeError):
            self._shell.finish()

    def read(self, size: int, timeout: float | None = None) -> bytes:
        """See protocol.Stream."""
        with self._reading:
            deadline = None if timeout is None else time.monotonic() + timeout
            while not self._rest and not self._ended:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    self._take(left)
                except TimeoutError:
                    message = f"{self._named}: nothing came from {self._doing} for {timeout:g} s"
                    raise HostTimeout(self._alias, message) from None
            found, self._rest = bytes(self._rest[:size]), self._rest[size:]
            return found

    def wait(self, timeout: float) -> Result:
        """See protocol.Stream."""
        deadline = time.monotonic() + timeout
        with self._reading:
            rest = [bytes(self._rest)]
            self._rest = memoryview(b"")
            try:
                status = self._until_ended(rest, deadline)
            except TimeoutError:
                self._rest = memoryview(b"".join(rest))
                message = f"{self._named}: {self._doing} did not end within {timeout:g} s"
                raise HostTimeout(self._alias, message) from None
            return Result(status, b"".join(rest), self._stderr())

    def close(self) -> None:
        """See protocol.Stream."""
        self._shell.close()

    def _until_ended(self, rest: list[bytes], deadline: float) -> int:
        """Takes everything until the program is through, and returns its status."""
        drain_until: float | None = None
        while not self._ended:
            until = deadline if drain_until is None else min(deadline, drain_until)
            try:
                self._take(min(0.25, max(0.0, until - time.monotonic())))
                rest.append(bytes(self._rest))
                self._rest = memoryview(b"")
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise
                if drain_until is not None and time.monotonic() >= drain_until:
                    break
                if drain_until is None and self._has_status():
                    drain_until = time.monotonic() + _DRAIN_S
        try:
            status = self._shell.status(max(0.0, deadline - time.monotonic()))
        except ShellGone as gone:
            raise self._lost(str(gone)) from gone
        if status is None:
            raise self._lost("the other side ended it without a status")
        return status

    def _has_status(self) -> bool:
        try:
            self._shell.status(0)
        except TimeoutError:
            return False
        except ShellGone as gone:
            raise self._lost(str(gone)) from gone
        return True

    def _take(self, timeout: float | None) -> None:
        try:
            chunk: Chunk = self._shell.receive(timeout)
        except ShellGone as gone:
            raise self._lost(str(gone)) from gone
        self._rest = memoryview(chunk.out)
        self._ended = chunk.ended
        self._err.feed(chunk.err)
        self._err.keep(STDERR_KEPT)

    def _stderr(self) -> bytes:
        return bytes(self._err.data[-STDERR_KEPT:]) if self._err.begun else b""

    def _lost(self, why: str) -> Unreachable:
        return Unreachable(
            self._alias,
            "connection",
            f"{self._named}: the connection was lost during {self._doing}: {why}",
            "what ran there may still run; try again when the host answers",
        )
