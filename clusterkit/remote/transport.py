"""Paramiko's transport, tuned: fast ciphers first, large windows, dead peers noticed, no thread left at exit.

What is overridden here by its private name is marked; the tests hold it against the installed Paramiko.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import paramiko
from paramiko.channel import Channel
from paramiko.common import MSG_CHANNEL_REQUEST, cMSG_GLOBAL_REQUEST
from paramiko.message import Message
from paramiko.packet import Packetizer

from clusterkit.remote.dial import SILENCE_S

# After this long without a word the peer is asked whether it is there (OpenSSH's ServerAliveInterval).
ASK_AFTER_S = 5.0
WINDOW = 4 << 20
_PACKET = 32768
# How often an idle connection looks whether it was closed or has gone silent.
_LOOK_S = 0.5


class ConnectionSilent(Exception):
    """The peer has not said anything for SILENCE_S, although it was asked."""


class WatchedPacketizer(Packetizer):
    """Packets in and out, knowing when the peer was last heard."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._connection = connection
        self._heard = self._asked = time.monotonic()
        self._ask: Callable[[], None] | None = None
        self._handshake_ends: float | None = None

    def watch(self, ask: Callable[[], None]) -> None:
        """From now on a silent peer is asked by `ask`, and given up after SILENCE_S."""
        self._heard = self._asked = time.monotonic()
        self._ask = ask

    @property
    def silent(self) -> bool:
        """True if the peer counts as dead."""
        return self._ask is not None and time.monotonic() - self._heard > SILENCE_S

    def read_message(self) -> tuple[int, Message]:
        """The next packet; the peer was heard."""
        found = super().read_message()
        self._heard = time.monotonic()
        return found

    def _check_keepalive(self) -> None:
        """Called by Paramiko's reader whenever nothing came for a moment. Raises ConnectionSilent."""
        if self._ask is None:
            return
        if self.silent:
            raise ConnectionSilent(f"no answer for {SILENCE_S:g} s")
        now = time.monotonic()
        if now - max(self._heard, self._asked) > ASK_AFTER_S:
            self._asked = now
            self._ask()

    def write_all(self, out: Any) -> None:
        """Send everything, or raise EOFError: never for ever, as Paramiko's own does towards a dead peer."""
        while out:
            try:
                sent = self._connection.send(out)
            except (TimeoutError, BlockingIOError):
                if self.closed or self.silent:
                    raise EOFError from None
                continue
            except OSError:
                raise EOFError from None
            if sent == 0:
                raise EOFError
            out = out[sent:]

    def close(self) -> None:
        """Nothing is sent or read any more; a bastion that is gone already need not hear of it."""
        # Called in the reader's thread too, where nobody could catch what a channel through it raises.
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            super().close()

    # Paramiko times the handshake with a threading.Timer, which keeps a process alive that wants to exit.

    def start_handshake(self, timeout: float) -> None:
        """The handshake has to end within `timeout` seconds."""
        self._handshake_ends = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        """True if it did not."""
        return self._handshake_ends is not None and time.monotonic() > self._handshake_ends

    def complete_handshake(self) -> None:
        """It did."""
        self._handshake_ends = None


class Transport(paramiko.Transport):
    """One ssh connection."""

    _active_check_timeout = _LOOK_S
    _preferred_ciphers = (
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
    )

    def __init__(self, connection: Any, host_keys: Sequence[str], **options: Any) -> None:
        self._host_keys = tuple(host_keys)
        self._opening: dict[int, int] = {}  # thread → the channel that it is opening
        self._refusals: dict[int, paramiko.ChannelException] = {}
        options.setdefault("packetizer_class", WatchedPacketizer)
        super().__init__(connection, default_window_size=WINDOW, default_max_packet_size=_PACKET, **options)
        self._channel_handler_table = {
            **getattr(paramiko.Transport, "_channel_handler_table"),  # noqa: B009 - not in the stubs
            MSG_CHANNEL_REQUEST: _channel_request,
        }

    # Paramiko keeps one error for all threads, so that a channel's refusal could be told to another, or lost.

    def open_channel(self, *args: Any, **options: Any) -> Channel:
        """A new channel. Raises ChannelException with this channel's own refusal, SSHException."""
        try:
            return super().open_channel(*args, **options)
        except paramiko.SSHException as error:
            refusal = self._refusals.pop(self._opening.get(threading.get_ident(), -1), None)
            if refusal is None:
                raise
            raise refusal from error
        finally:
            self._opening.pop(threading.get_ident(), None)

    def _next_channel(self) -> int:
        number: int = super()._next_channel()  # type: ignore[misc]
        self._opening[threading.get_ident()] = number
        return number

    def _parse_channel_open_failure(self, message: Message) -> None:
        look = Message(message.get_remainder())
        number, code, text = look.get_int(), look.get_int(), look.get_text()
        self._refusals[number] = paramiko.ChannelException(code, text)
        super()._parse_channel_open_failure(message)  # type: ignore[misc]

    @property
    def preferred_keys(self) -> Sequence[str]:
        """Host key algorithms, those first for which a key is known."""
        return self._host_keys

    def watch(self) -> None:
        """Notice from now on when the peer is gone."""
        watched: Any = self.packetizer
        watched.watch(self._ask)

    def _ask(self) -> None:
        """A request that every sshd answers, if only with a refusal. Runs in the transport's own thread."""
        if not self.clear_to_send.is_set():
            return  # keys are being exchanged: the peer is talking, and must not be waited for here
        message = Message()
        message.add_byte(cMSG_GLOBAL_REQUEST)
        message.add_string("keepalive@openssh.com")
        message.add_boolean(True)
        self._send_message(message)  # type: ignore[attr-defined]

    @property
    def silent(self) -> bool:
        """True if the peer was given up because it did not answer."""
        watched: Any = self.packetizer
        return isinstance(self.saved_exception, ConnectionSilent) or bool(watched.silent)

    def drop(self) -> None:
        """Close at once, without waiting for anybody."""
        # Each of these may find the connection, or the bastion that it goes through, closed already.
        steps: tuple[Callable[[], object], ...] = (
            lambda: self.sock.shutdown(socket.SHUT_RDWR),
            self.close,
            self.sock.close,
        )
        for step in steps:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                step()


def _channel_request(channel: Channel, message: Message) -> None:
    """Paramiko drops `exit-signal` (RFC 4254, 6.10): here it becomes the status that a shell gives, 128+n."""
    look = Message(message.get_remainder())
    if look.get_text() != "exit-signal":
        channel._handle_request(message)  # type: ignore[attr-defined]
        return
    look.get_boolean()
    name = look.get_text()
    channel.exit_status = 128 + getattr(signal, f"SIG{name}", 0)
    channel.status_event.set()
