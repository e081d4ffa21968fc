"""One host over ssh: connect at the first use, and again when the connection is lost between two uses."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import fabric
import paramiko

from clusterkit.errors import ClusterkitError, Unreachable
from clusterkit.inventory.model import Settings
from clusterkit.remote.agents import Agents
from clusterkit.remote.authentication import Login
from clusterkit.remote.dial import ProxyProcess, dial
from clusterkit.remote.endpoint import Endpoint
from clusterkit.remote.failures import (
    DroppedBySshd,
    bastion_failed,
    bastion_refused,
    connect_failed,
    session_refused,
)
from clusterkit.remote.hostkeys import HostKeyCheck, RecordedKeys
from clusterkit.remote.keys import KeyRing
from clusterkit.remote.knownhosts import KnownHosts
from clusterkit.remote.options import ConnectOptions
from clusterkit.remote.protocol import Result, Stream
from clusterkit.remote.resolve import resolve
from clusterkit.remote.secrets import AskedOnce
from clusterkit.remote.session import Become, Deadline, Place, open_stream, run
from clusterkit.remote.shell import ShellGone
from clusterkit.remote.sshshell import SshShell
from clusterkit.remote.transport import Transport

_TRIES = 6
# sshd opens no more than MaxSessions (10) on a connection: one more waits this long for one to end.
_SESSION_WAIT_S = 10.0
_SESSION_PAUSE_S = 0.25
_FAILURE_HOLDS_S = 5.0


class Shared:
    """What the connections of one run have in common."""

    def __init__(self, options: ConnectOptions, warn: Callable[[str], None]) -> None:
        self.options = options
        self.warn = warn
        self.asked = AskedOnce(options.prompter)
        self.keys = KeyRing(self.asked)
        self.agents = Agents()
        self.known_hosts = KnownHosts()
        self.recorded = RecordedKeys()
        self._lock = threading.Lock()
        self._bastions: dict[Endpoint, Bastion] = {}

    def bastion(self, endpoint: Endpoint) -> Bastion:
        """The one connection to a bastion."""
        with self._lock:
            if endpoint not in self._bastions:
                self._bastions[endpoint] = Bastion(endpoint, self)
            return self._bastions[endpoint]

    def close(self) -> None:
        """Close the bastions, and hang up on the agents."""
        with self._lock:
            bastions = list(self._bastions.values())
            self._bastions.clear()
        for bastion in bastions:
            bastion.link.close()
        self.agents.close()


class Link:
    """A connection to one endpoint that is made when it is needed. Safe to use from several threads."""

    def __init__(self, endpoint: Endpoint, shared: Shared) -> None:
        self.endpoint = endpoint
        self._shared = shared
        self._lock = threading.Lock()
        self._open: _Open | None = None

    def transport(self) -> Transport:
        """A living connection. Raises Unreachable."""
        with self._lock:
            if self._open is None or not self._open.transport.is_active():
                if self._open is not None:
                    self._open.close()
                    self._open = None
                self._open = _connect_with_retries(self.endpoint, self._shared)
            return self._open.transport

    def close(self) -> None:
        """Close it; the next use connects again."""
        found, self._open = self._open, None  # without the lock: somebody may be connecting, for long
        if found is not None:
            found.close()


class Bastion:
    """A host on the way to others: one connection, and a channel through it for each of them."""

    def __init__(self, endpoint: Endpoint, shared: Shared) -> None:
        self.link = Link(endpoint, shared)
        self._lock = threading.Lock()
        self._failed: tuple[float, Unreachable] | None = None
        self.starts = threading.BoundedSemaphore(shared.options.starts_per_bastion)

    def channel_to(self, endpoint: Endpoint, limit: float) -> paramiko.Channel:
        """A TCP connection from the bastion to `endpoint`. Raises Unreachable."""
        bastion = self.link.endpoint
        transport = self._transport(endpoint)
        try:
            return transport.open_channel(
                "direct-tcpip", (endpoint.address, endpoint.port), ("127.0.0.1", 0), timeout=limit
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise bastion_refused(endpoint, bastion, error, limit) from error

    def _transport(self, endpoint: Endpoint) -> Transport:
        """The bastion's connection; hosts that wait for the same failure do not each wait for their own."""
        with self._lock:
            if self._failed is not None and time.monotonic() - self._failed[0] < _FAILURE_HOLDS_S:
                raise bastion_failed(endpoint, self._failed[1])
            try:
                return self.link.transport()
            except Unreachable as error:
                self._failed = (time.monotonic(), error)
                raise bastion_failed(endpoint, error) from error


class _Open:
    """An open connection with all that has to be closed with it."""

    def __init__(self, connection: Any, transport: Transport, proxy: ProxyProcess | None) -> None:
        self._connection = connection
        self.transport = transport
        self._proxy = proxy

    def close(self) -> None:
        self.transport.drop()
        self._connection.close()
        if self._proxy is not None:
            self._proxy.close()


def _connect_with_retries(endpoint: Endpoint, shared: Shared) -> _Open:
    """sshd drops connections at random beyond MaxStartups: it is tried again, a little later each time."""
    end = time.monotonic() + shared.options.retry_for
    for attempt in range(_TRIES):
        try:
            with _turn(endpoint, shared):
                return _connect(endpoint, shared)
        except DroppedBySshd as error:
            pause = random.uniform(0.5, 1.0) * min(5.0, 0.3 * 2**attempt)
            if attempt == _TRIES - 1 or time.monotonic() + pause > end:
                message = f"{error.message} ({attempt + 1} tries)"
                raise Unreachable(endpoint.label, error.stage, message, error.hint) from error
            time.sleep(pause)
    raise AssertionError("the last try returns or raises")


@contextlib.contextmanager
def _turn(endpoint: Endpoint, shared: Shared) -> Iterator[None]:
    """Behind a bastion only some connect at a time."""
    if endpoint.jump is None:
        yield
        return
    with shared.bastion(endpoint.jump).starts:
        yield


def _connect(endpoint: Endpoint, shared: Shared) -> _Open:
    """Socket, banner, host key, authentication. Raises Unreachable; DroppedBySshd where a retry may help."""
    proxy: ProxyProcess | None = None
    made: list[Transport] = []
    if endpoint.jump is not None:
        sock: Any = shared.bastion(endpoint.jump).channel_to(endpoint, shared.options.timeouts.connect)
    elif endpoint.proxy_command:
        proxy = ProxyProcess(endpoint.proxy_command)
        sock = proxy.socket
    else:
        sock = dial(endpoint, shared.options.timeouts)
    connection = _connection(endpoint, shared, sock, made)
    try:
        connection.open()
        made[0].watch()
        return _Open(connection, made[0], proxy)
    except BaseException as error:
        words = proxy.last_words() if proxy else ""
        for transport in made:
            transport.drop()
        connection.client.close()
        sock.close()
        if proxy is not None:
            proxy.close()
        if isinstance(error, ClusterkitError) or not isinstance(
            error, (paramiko.SSHException, EOFError, OSError)
        ):
            raise
        raise _with_words(connect_failed(endpoint, error, made[0] if made else None), proxy, words) from error


def _with_words(failure: Unreachable, proxy: ProxyProcess | None, words: str) -> Unreachable:
    """A ProxyCommand that ended has said why on its stderr, and is not tried again."""
    if proxy is None:
        return failure
    reason = words or "it ended without a word"
    return Unreachable(
        failure.host,
        "tcp",
        f"{failure.message} (ProxyCommand `{proxy.command}`: {reason})",
        "try the ProxyCommand by hand",
    )


def _connection(endpoint: Endpoint, shared: Shared, sock: Any, made: list[Transport]) -> Any:
    """Fabric's Connection, with everything decided by us: it reads no file and accepts no unknown key."""
    timeouts = shared.options.timeouts
    check = HostKeyCheck(endpoint, shared.known_hosts, shared.recorded.add, shared.warn)

    def transport(connected: Any, **options: Any) -> Transport:
        made.append(Transport(connected, check.algorithms(), **options))
        made[0].handshake_timeout = timeouts.banner
        return made[0]

    connection = fabric.Connection(
        endpoint.address,
        user=endpoint.user,
        port=endpoint.port,
        config=fabric.Config(lazy=True, ssh_config=paramiko.SSHConfig()),
        connect_kwargs={
            "sock": sock,
            "banner_timeout": timeouts.banner,
            "auth_timeout": timeouts.authentication,
            "channel_timeout": timeouts.connect,
            "transport_factory": transport,
            "auth_strategy": Login(endpoint, shared.keys, shared.agents, shared.asked, lambda: check.changed),
        },
    )
    connection.client.set_missing_host_key_policy(check)
    return connection


class SshRemote:
    """The Remote of protocol.py over ssh."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        self._settings = settings
        self._shared = shared
        self._lock = threading.Lock()
        self._link: Link | None = None

    @property
    def alias(self) -> str:
        """The host's name in the inventory."""
        return self._settings.alias

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        """See protocol.Remote."""
        place = self._place()
        return run(place, script, Deadline(place, timeout, doing), sudo=sudo)

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        """See protocol.Remote."""
        place = self._place()
        return open_stream(place, script, Deadline(place, timeout, doing), sudo=sudo)

    def close(self) -> None:
        """See protocol.Remote."""
        if self._link is not None:
            self._link.close()

    def _connected(self) -> Link:
        with self._lock:
            if self._link is None:
                self._link = Link(
                    resolve(self._settings, self._shared.options, self._shared.warn), self._shared
                )
        self._link.transport()
        return self._link

    def _place(self) -> Place:
        link = self._connected()  # before any time limit of a script starts: connecting has limits of its own
        endpoint = link.endpoint
        password = self._settings.become_password or self._shared.options.become_password
        return Place(
            alias=self.alias,
            named=endpoint.named,
            user=endpoint.user,
            new_shell=lambda timeout: _new_shell(link, timeout),
            become=Become(self._settings.become_user, password),
        )


def _new_shell(link: Link, timeout: float) -> SshShell:
    """A shell on a new channel. Raises TimeoutError, ShellGone, Unreachable."""
    begun = time.monotonic()
    end = begun + timeout
    anew = False
    while True:
        transport = link.transport()
        try:
            left = max(0.1, end - time.monotonic())
            channel = transport.open_session(timeout=left)
            return SshShell(transport, channel, left)
        except paramiko.ChannelException as error:
            if time.monotonic() + _SESSION_PAUSE_S > min(end, begun + _SESSION_WAIT_S):
                raise session_refused(link.endpoint, error) from error
            time.sleep(_SESSION_PAUSE_S)
        except (paramiko.SSHException, EOFError, OSError) as error:
            if isinstance(error, TimeoutError) or "timeout" in str(error).lower():
                raise TimeoutError from error
            if transport.is_active() or anew:
                raise ShellGone(str(error) or "the other side closed it") from error
            anew = True  # it had died while it was idle, and nothing was started yet: connect once more
