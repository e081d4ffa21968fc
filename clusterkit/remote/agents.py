"""ssh-agents: one connection to each socket, shared by all hosts."""

from __future__ import annotations

import socket
import threading
from typing import Any

import paramiko
from paramiko.agent import AgentKey, AgentSSH
from paramiko.pkey import PublicBlob

_ANSWER_S = 30.0
_CERTIFICATE = "-cert-v01@openssh.com"


class SharedAgent(AgentSSH):
    """An agent's keys, for several threads: unlike Paramiko's, one request is on the wire at a time."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._wire = threading.Lock()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_ANSWER_S)  # a key may want to be touched
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]
        except BaseException:
            connection.close()
            raise

    def _send_message(self, message: Any) -> Any:
        with self._wire:
            return super()._send_message(message)  # type: ignore[misc]

    def get_keys(self) -> tuple[AgentKey, ...]:
        """The keys that it had when we called; a certificate is shown and signed for as such."""
        return tuple(
            HeldCertificate(key) if key.name.endswith(_CERTIFICATE) else key for key in super().get_keys()
        )

    def close(self) -> None:
        """Hang up."""
        self._close()  # type: ignore[attr-defined]


class HeldCertificate(AgentKey):
    """A certificate in an agent: Paramiko itself would show, and sign with, the plain key."""

    def __init__(self, key: AgentKey) -> None:
        super().__init__(key.agent, key.blob, key.comment)
        self.public_blob: Any = PublicBlob(key.name, key.blob)

    def asbytes(self) -> bytes:
        """The certificate, which is what the agent knows it by."""
        return self.blob

    def sign_ssh_data(self, data: Any, algorithm: str | None = None) -> Any:
        """A signature of the agent's; it picks the hash by the plain algorithm's name."""
        return super().sign_ssh_data(data, (algorithm or "").removesuffix(_CERTIFICATE))


class Agents:
    """The agents that hosts name (SSH_AUTH_SOCK, IdentityAgent), connected at first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, SharedAgent | str] = {}

    def keys(self, path: str) -> tuple[AgentKey, ...]:
        """The keys in the agent at `path`; none if it does not answer."""
        with self._lock:
            if path not in self._open:
                self._open[path] = self._try(path)
            found = self._open[path]
        return () if isinstance(found, str) else found.get_keys()

    def problem(self, path: str) -> str:
        """Why the agent at `path` gave no keys; empty if it answered."""
        with self._lock:
            found = self._open.get(path, "")
        return found if isinstance(found, str) else ""

    def close(self) -> None:
        """Hang up on all."""
        with self._lock:
            for agent in self._open.values():
                if isinstance(agent, SharedAgent):
                    agent.close()
            self._open.clear()

    @staticmethod
    def _try(path: str) -> SharedAgent | str:
        try:
            return SharedAgent(path)
        except (OSError, paramiko.SSHException) as error:
            return f"the agent at {path} does not answer: {getattr(error, 'strerror', None) or error}"
