"""A TCP connection with a limit on each part: the name look-up (which has none itself) and the connect."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import signal
import socket
import subprocess
import tempfile
import threading
import time
from typing import IO, Any

from clusterkit.errors import Unreachable
from clusterkit.remote.endpoint import Endpoint
from clusterkit.remote.options import Timeouts

_FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}
# A peer that acknowledges nothing for this long is dead; the kernel then fails the socket.
SILENCE_S = 17.0

_Address = tuple[socket.AddressFamily, Any]


def dial(endpoint: Endpoint, timeouts: Timeouts) -> socket.socket:
    """A connected socket, set up for bulk data and for noticing a dead peer. Raises Unreachable."""
    found = _find(endpoint, timeouts.name)
    problem: OSError | None = None
    deadline = time.monotonic() + timeouts.connect
    for place, (family, address) in enumerate(found):
        # Several addresses share the limit, so that a dead first one leaves time for the second.
        limit = max(0.1, (deadline - time.monotonic()) / (len(found) - place))
        try:
            return _connect(family, address, endpoint.bind_address, limit)
        except OSError as error:
            problem = problem or error
    raise _failed(endpoint, problem, timeouts.connect)


def _find(endpoint: Endpoint, limit: float) -> list[_Address]:
    answers: queue.Queue[list[_Address] | OSError] = queue.Queue()
    threading.Thread(target=_look_up, args=(endpoint, answers), daemon=True, name="look-up").start()
    try:
        answer = answers.get(timeout=limit)
    except queue.Empty:
        raise Unreachable(
            endpoint.label,
            "name",
            f"{endpoint.named}: the name look-up of {endpoint.address} did not end within {limit:g} s",
            "check the name servers in /etc/resolv.conf, or set ansible_host to an IP address",
        ) from None
    if isinstance(answer, OSError):
        raise Unreachable(
            endpoint.label,
            "name",
            f"{endpoint.named}: the name {endpoint.address} cannot be resolved: {answer.strerror or answer}",
            "check the spelling, or set ansible_host to an IP address",
        )
    return answer


def _look_up(endpoint: Endpoint, answers: queue.Queue[list[_Address] | OSError]) -> None:
    try:
        found = socket.getaddrinfo(
            endpoint.address,
            endpoint.port,
            _FAMILIES.get(endpoint.family, socket.AF_UNSPEC),
            socket.SOCK_STREAM,
        )
        answers.put(list(dict.fromkeys((family, address) for family, _, _, _, address in found)))
    except OSError as error:
        answers.put(error)
    except UnicodeError:  # a label longer than 63 characters
        answers.put(OSError(errno.EINVAL, "not a valid host name"))


def _connect(family: socket.AddressFamily, address: Any, source: str | None, limit: float) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(limit)
        if source:
            connection.bind((source, 0))
        connection.connect(address)
        _tune(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; elsewhere the ssh-level question does it alone
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENCE_S * 1000))


def _failed(endpoint: Endpoint, problem: OSError | None, limit: float) -> Unreachable:
    code = problem.errno if problem else None
    if isinstance(problem, TimeoutError) or code == errno.ETIMEDOUT:
        message = f"no answer to the TCP connection within {limit:g} s"
        hint = "is the machine up, and does a firewall drop the ssh port?"
    elif code == errno.ECONNREFUSED:
        message, hint = (
            "the TCP connection was refused",
            "is sshd running there, and on this port (ansible_port)?",
        )
    elif code in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        message = f"no route to {endpoint.address}"
        hint = "is the machine up and on this network, and is ansible_host right?"
    else:
        message = (
            f"the TCP connection failed: {problem.strerror or problem if problem else 'no address found'}"
        )
        hint = "check ansible_host and ansible_port"
    return Unreachable(endpoint.label, "tcp", f"{endpoint.named}: {message}", hint)


class ProxyProcess:
    """A ProxyCommand: `socket` is its stdin and stdout. Ends when closed."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.socket, theirs = socket.socketpair()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        with theirs:
            self._process = subprocess.Popen(
                ["sh", "-c", command],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                start_new_session=True,
            )

    def last_words(self) -> str:
        """The last line that the command wrote on stderr."""
        if self._stderr.closed:
            return ""
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def close(self) -> None:
        """End the command and collect it."""
        self.socket.close()
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait(1)
        self._stderr.close()

    def _signal(self, signum: int) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signum)
