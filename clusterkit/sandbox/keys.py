"""Host keys and the user's key. Made once for a sandbox's name and kept over `down` and `up`."""

from __future__ import annotations

from pathlib import Path

from clusterkit.sandbox.commands import run
from clusterkit.sandbox.requirements import path_of


def ensure_key(directory: Path, name: str) -> Path:
    """The private key's path; an ed25519 key without passphrase, made where there is none."""
    path = directory / name
    if path.exists() and path.with_name(f"{name}.pub").exists():
        return path
    return new_key(directory, name)


def new_key(directory: Path, name: str) -> Path:
    """As `ensure_key`, but the key is a new one."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    path = directory / name
    for old in (path, path.with_name(f"{name}.pub")):
        old.unlink(missing_ok=True)
    run(
        [
            path_of("ssh-keygen"),
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            f"clusterkit-sandbox-{name}",
            "-f",
            str(path),
        ]
    )
    return path


def public(private: Path) -> str:
    """The public half, one line."""
    return private.with_name(f"{private.name}.pub").read_text().strip()


def known_hosts_line(address: str, port: int, public_key: str) -> str:
    """An entry as ssh writes it: `[address]:port` for every port but 22."""
    name = address if port == 22 else f"[{address}]:{port}"
    return f"{name} {' '.join(public_key.split()[:2])}"
