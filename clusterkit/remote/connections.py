"""The connections of one run: one Remote a host, and what they share (bastions, answers, new host keys)."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING

from clusterkit.inventory.model import Settings
from clusterkit.remote.knownhosts import RecordedKey
from clusterkit.remote.local import LocalRemote
from clusterkit.remote.options import ConnectOptions
from clusterkit.remote.protocol import Remote, Result, Stream

if TYPE_CHECKING:
    from clusterkit.remote.ssh import Shared, SshRemote


class Connections:
    """Makes remotes and closes them all: `with Connections(options) as made: remote = made.to(settings)`.

    Nothing is connected, and neither Fabric nor Paramiko imported, before a host over ssh is first asked for.
    """

    def __init__(self, options: ConnectOptions | None = None) -> None:
        self._options = options or ConnectOptions()
        self._lock = threading.Lock()
        self._shared: Shared | None = None
        self._remotes: list[SshRemote] = []
        self._warnings: dict[str, None] = {}

    def __enter__(self) -> Connections:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def to(self, settings: Settings) -> Remote:
        """A Remote for one host; it connects at its first use."""
        if settings.connection == "local":
            return LocalRemote(settings, self._options)
        from clusterkit.remote.ssh import SshRemote

        with self._lock:
            remote = SshRemote(settings, self._shared_now())
            self._remotes.append(remote)
        return remote

    @property
    def recorded_keys(self) -> tuple[RecordedKey, ...]:
        """Host keys that were new and have been trusted and recorded so far: to be shown."""
        return self._shared.recorded.all() if self._shared else ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is worth a word without being an error, each once."""
        with self._lock:
            return tuple(self._warnings)

    def close(self) -> None:
        """Close every connection, without waiting for hosts that do not answer."""
        with self._lock:
            remotes, self._remotes = self._remotes, []
            shared = self._shared
        for remote in remotes:
            remote.close()
        if shared is not None:
            shared.close()

    def _shared_now(self) -> Shared:
        if self._shared is None:
            from clusterkit.remote.ssh import Shared

            _silence_paramiko()
            self._shared = Shared(self._options, self._warn)
        return self._shared

    def _warn(self, message: str) -> None:
        with self._lock:
            self._warnings[message] = None


def connect(settings: Settings, options: ConnectOptions | None = None) -> Remote:
    """One host on its own: closing the Remote closes everything that was opened for it."""
    return _Alone(settings, Connections(options))


class _Alone:
    """A Remote that owns its Connections."""

    def __init__(self, settings: Settings, connections: Connections) -> None:
        self._connections = connections
        self._remote = connections.to(settings)
        self.alias = settings.alias

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        return self._remote.run(script, timeout=timeout, sudo=sudo, doing=doing)

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        return self._remote.open(script, timeout=timeout, sudo=sudo, doing=doing)

    def close(self) -> None:
        self._remote.close()
        self._connections.close()


def _silence_paramiko() -> None:
    """Its threads log tracebacks, which Python prints where nobody else listens; we report each failure."""
    import logging

    logger = logging.getLogger("paramiko")
    if not any(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
        logger.addHandler(logging.NullHandler())
