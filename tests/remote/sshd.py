"""A real sshd on loopback, with its own keys, configuration and log in one folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.inventory.model import Settings

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "", *more: str) -> Path:
    """A fresh key pair."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, *more, "-f", str(path)],
        check=True,
    )
    return path


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@dataclass
class Sshd:
    """A running sshd, and a client folder that knows it: `settings()` leads there."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    key: Path
    known_hosts: Path
    user: str = "root"

    def settings(self, alias: str = "gpu01", address: str = "127.0.0.1", **changes: Any) -> Settings:
        """An inventory's settings for this sshd; no file of the person who runs the tests is read."""
        values: dict[str, Any] = {
            "alias": alias,
            "address": address,
            "port": self.port,
            "user": self.user,
            "private_key_file": str(self.key),
            "ssh_common_args": self.args(),
        }
        return Settings(**{**values, **changes})

    def args(self, *options: str, config: Path | None = None) -> str:
        """ssh arguments that keep the person's own files out."""
        ours = (
            f"UserKnownHostsFile={self.known_hosts}",
            "GlobalKnownHostsFile=/dev/null",
            "IdentityAgent=none",
        )
        return " ".join([f"-F {config or '/dev/null'}", *(f"-o {option}" for option in (*options, *ours))])

    def host_key_line(self, name: str | None = None, kind: str = "ed25519") -> str:
        """A known_hosts line for one of the host keys."""
        fields = (self.folder / f"host_{kind}.pub").read_text().split()
        return f"{name or f'[127.0.0.1]:{self.port}'} {fields[0]} {fields[1]}\n"

    def log(self) -> str:
        """What sshd wrote."""
        return (self.folder / "log").read_text()

    def session_pids(self) -> list[int]:
        """The processes of sshd that serve one connection each."""
        return [child for child in _children(self.process.pid) if child != self.process.pid]


def _children(pid: int) -> list[int]:
    """Every living descendant; one that ends while we look (a scan for host keys does) is not there."""
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            children += [int(child) for child in (task / "children").read_text().split()]
    return [pid for child in children for pid in (child, *_children(child))]


class PortTaken(RuntimeError):
    """Somebody took the port between the look and the bind."""


def start(
    folder: Path,
    *options: str,
    listen: tuple[str, ...] = ("0.0.0.0",),
    port: int | None = None,
    user: str = "root",
) -> Sshd:
    """Start one; `options` are lines of its configuration, which win over the defaults here."""
    for _ in range(4):
        with contextlib.suppress(PortTaken):
            return _start(folder, *options, listen=listen, port=port or free_port(), user=user)
        (folder / "log").unlink()
    raise PortTaken(f"no port could be had for {folder}")


def _start(folder: Path, *options: str, listen: tuple[str, ...], port: int, user: str) -> Sshd:
    folder.mkdir(parents=True, exist_ok=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    for kind in ("ed25519", "rsa", "ecdsa"):
        if not (folder / f"host_{kind}").exists():
            keygen(folder / f"host_{kind}", kind, "", *(("-b", "2048") if kind == "rsa" else ()))
    client = folder / "client"
    client.mkdir(exist_ok=True)
    key = client / "id"
    if not key.exists():
        keygen(key)
        (folder / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    lines = [
        *options,
        *(
            f"ListenAddress [{host}]:{port}" if ":" in host else f"ListenAddress {host}:{port}"
            for host in listen
        ),
        *(f"HostKey {folder}/host_{kind}" for kind in ("ed25519", "rsa", "ecdsa")),
        f"AuthorizedKeysFile {folder}/authorized_keys",
        "PidFile none",
        "UsePAM no",
        "StrictModes no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin yes",
        "PrintMotd no",
        "Subsystem sftp internal-sftp",
    ]
    config = folder / "sshd_config"
    config.write_text("\n".join(lines) + "\n")
    process = subprocess.Popen(
        [SSHD, "-D", "-f", str(config), "-E", str(folder / "log")], start_new_session=True
    )
    for host in listen:
        _wait_for(process, "127.0.0.1" if host == "0.0.0.0" else host, port, folder)
    return Sshd(folder, port, process, key, client / "known_hosts", user)


def _wait_for(process: subprocess.Popen[bytes], host: str, port: int, folder: Path) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1) as probe:
            probe.recv(100)
            return
        time.sleep(0.02)
    said = (folder / "log").read_text()
    if "Address already in use" in said:
        raise PortTaken(said)
    raise RuntimeError(f"sshd does not listen: {said}")


def stop(server: Sshd) -> None:
    """End it and the processes that serve its connections."""
    server.process.send_signal(signal.SIGCONT)
    for pid in [*_children(server.process.pid), server.process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGKILL)
    server.process.wait(5)


@contextlib.contextmanager
def running(
    folder: Path, *options: str, listen: tuple[str, ...] = ("0.0.0.0",), user: str = "root"
) -> Iterator[Sshd]:
    """One sshd for the length of a block."""
    server = start(folder, *options, listen=listen, user=user)
    try:
        yield server
    finally:
        stop(server)
