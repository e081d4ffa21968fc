"""Errors of Paramiko and of sockets, said as one line with the stage, what happened and what to do."""

from __future__ import annotations

import paramiko
from paramiko.ssh_exception import ChannelException, IncompatiblePeer

from clusterkit.errors import Unreachable
from clusterkit.remote.endpoint import Endpoint

_PROHIBITED = 1


class DroppedBySshd(Unreachable):
    """sshd closed the connection before its banner, as it does beyond MaxStartups: worth another try."""


def connect_failed(endpoint: Endpoint, error: Exception, transport: paramiko.Transport | None) -> Unreachable:
    """Why a connection whose socket was open did not come to be usable."""
    before_banner = transport is None or not transport.remote_version
    cause = error.__context__ if isinstance(error, paramiko.SSHException) else error
    if before_banner and "banner" in str(error).lower() and isinstance(cause, TimeoutError):
        limit = transport.banner_timeout if transport else 0
        return _unreachable(
            endpoint,
            f"connected, but no ssh banner came within {limit:g} s",
            "sshd hangs or is overloaded, or something else listens on this port",
        )
    if before_banner and isinstance(cause, (EOFError, OSError)):
        return DroppedBySshd(
            endpoint.label,
            "banner",
            f"{endpoint.named}: the connection was closed before the ssh banner",
            "sshd drops connections beyond MaxStartups (default 10:30:100): raise it there, or lower --forks",
        )
    if isinstance(error, IncompatiblePeer):
        return _unreachable(
            endpoint, f"no common ssh algorithms: {error}", "update sshd on the host, or this machine"
        )
    if isinstance(error, EOFError) or (isinstance(error, paramiko.SSHException) and not str(error)):
        return _unreachable(
            endpoint, "the connection was closed during the ssh handshake", "see the host's own log"
        )
    if "protocol version" in str(error) or "banner" in str(error).lower():
        hint = "something else than sshd listens on this port: check ansible_port"
        return _unreachable(endpoint, f"what answers is not ssh: {error}", hint)
    return _unreachable(
        endpoint, f"the ssh handshake failed: {error}", "see the host's own log: journalctl -u ssh"
    )


def bastion_refused(endpoint: Endpoint, bastion: Endpoint, error: Exception, limit: float) -> Unreachable:
    """The bastion is there, but gives no way to the host behind it."""
    by_way_of = f"by way of {bastion.named}"
    if isinstance(error, ChannelException) and error.code == _PROHIBITED:
        message = f"{bastion.named} forbids forwarding to {endpoint.where}"
        hint = "on the bastion, in sshd_config: AllowTcpForwarding yes, and see PermitOpen"
    elif "timeout" in str(error).lower():
        message = f"no answer to the TCP connection {by_way_of} within {limit:g} s"
        hint = "is the machine up, and does a firewall drop its ssh port?"
    else:
        reason = error.text if isinstance(error, ChannelException) else str(error) or type(error).__name__
        message = f"the TCP connection {by_way_of} failed: {reason}"
        hint = "is sshd running there, and does the bastion know this name?"
    return Unreachable(endpoint.label, "tcp", f"{endpoint.named}: {message}", hint)


def bastion_failed(endpoint: Endpoint, error: Unreachable) -> Unreachable:
    """The bastion itself cannot be used: said for the host behind it."""
    return Unreachable(endpoint.label, error.stage, f"{endpoint.named}: {error.message}", error.hint)


def session_refused(endpoint: Endpoint, error: Exception) -> Unreachable:
    """sshd gives no further session on a connection that works."""
    return Unreachable(
        endpoint.label,
        "shell",
        f"{endpoint.named}: sshd refuses another session: {error}",
        "sshd_config on the host: MaxSessions (default 10)",
    )


def _unreachable(endpoint: Endpoint, message: str, hint: str) -> Unreachable:
    return Unreachable(endpoint.label, "banner", f"{endpoint.named}: {message}", hint)
