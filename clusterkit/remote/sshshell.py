"""A shell at the other end of an ssh channel."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import paramiko
from paramiko.channel import Channel

from clusterkit.remote.shell import Chunk, ShellGone
from clusterkit.remote.transport import WINDOW, Transport

# tcsh, fish, zsh, bash: whatever the login shell is, it understands this, and is gone afterwards.
_COMMAND = b"exec sh -s"
# Room for the other end's headers in a packet.
_PIECE = 32 * 1024
# Under bulk data, one look for several packets: waking for each costs more than its decryption.
_GATHER_S = 0.001


class _Bell:
    """Rings when either of two pipes has something. Each pipe wants to silence it alone: only we do."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        """Paramiko's pipes call this when they are empty; the other may not be."""

    def silence(self) -> None:
        self._event.clear()

    def wait(self, timeout: float | None) -> bool:
        return self._event.wait(timeout)


class SshShell:
    """`exec sh -s`, started on a fresh channel."""

    def __init__(self, transport: Transport, channel: Channel, timeout: float) -> None:
        self._transport = transport
        self._channel = channel
        self._bell = _Bell()
        self._bulk = False
        bell: Any = self._bell
        channel.in_buffer.set_event(bell)
        channel.in_stderr_buffer.set_event(bell)
        self._start(timeout)

    def _start(self, timeout: float) -> None:
        """Ask for the shell, with a limit: Paramiko's own `exec_command` waits for ever."""
        channel: Any = self._channel
        message = paramiko.Message()
        message.add_byte(paramiko.common.cMSG_CHANNEL_REQUEST)
        message.add_int(channel.remote_chanid)
        message.add_string("exec")
        message.add_boolean(True)
        message.add_string(_COMMAND)
        channel._event_pending()
        self._transport._send_user_message(message)  # type: ignore[attr-defined]
        if not channel.event.wait(timeout):
            channel.close()
            raise TimeoutError
        if not channel.event_ready:
            self._raise_if_gone()
            raise ShellGone("sshd refused to start a shell")

    def send(self, data: bytes) -> None:
        """See Shell."""
        view = memoryview(data)
        while view:
            try:
                sent = self._channel.send(bytes(view[:_PIECE]))
            except (OSError, EOFError, paramiko.SSHException) as error:
                self._raise_if_gone()
                raise BrokenPipeError from error
            if sent == 0 or not self._transport.is_active():
                self._raise_if_gone()
                raise BrokenPipeError
            view = view[sent:]

    def finish(self) -> None:
        """See Shell."""
        try:
            self._channel.shutdown_write()
        except (OSError, EOFError, paramiko.SSHException):
            self._raise_if_gone()

    def receive(self, timeout: float | None) -> Chunk:
        """See Shell."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._bulk:
            time.sleep(_GATHER_S)
        while True:
            self._bell.silence()
            ended = self._channel.closed or bool(self._channel.eof_received)
            out = self._channel.recv(WINDOW) if self._channel.recv_ready() else b""
            err = self._channel.recv_stderr(WINDOW) if self._channel.recv_stderr_ready() else b""
            if out or err:
                self._bulk = len(out) >= _PIECE // 2
                return Chunk(out, err, False)
            if ended:
                if not self._channel.eof_received:
                    self._raise_if_gone()
                return Chunk(b"", b"", True)
            if not self._bell.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                raise TimeoutError

    def status(self, timeout: float) -> int | None:
        """See Shell."""
        if not self._channel.status_event.wait(timeout):
            raise TimeoutError
        if self._channel.exit_status < 0:
            self._raise_if_gone()
            return None
        return self._channel.exit_status

    def close(self) -> None:
        """See Shell."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()

    def _raise_if_gone(self) -> None:
        if self._transport.silent:
            raise ShellGone("it has not answered for some time, the network or the machine is down")
        if not self._transport.is_active():
            raise ShellGone("the other side closed it")
