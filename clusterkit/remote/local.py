"""This machine behind the same interface, for ansible_connection=local: no ssh."""

from __future__ import annotations

from clusterkit.inventory.model import Settings
from clusterkit.remote.localshell import LocalShell
from clusterkit.remote.options import ConnectOptions
from clusterkit.remote.protocol import Result, Stream
from clusterkit.remote.session import Become, Deadline, Place, open_stream, run
from clusterkit.remote.tokens import local_user


class LocalRemote:
    """The Remote of protocol.py on this machine."""

    def __init__(self, settings: Settings, options: ConnectOptions) -> None:
        self._alias = settings.alias
        password = settings.become_password or options.become_password
        self._place = Place(
            alias=settings.alias,
            named=settings.alias,
            user=local_user(),
            new_shell=lambda timeout: LocalShell(),
            become=Become(settings.become_user, password),
        )

    @property
    def alias(self) -> str:
        """The host's name in the inventory."""
        return self._alias

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        """See protocol.Remote."""
        return run(self._place, script, Deadline(self._place, timeout, doing), sudo=sudo)

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        """See protocol.Remote."""
        return open_stream(self._place, script, Deadline(self._place, timeout, doing), sudo=sudo)

    def close(self) -> None:
        """There is nothing to close."""
