"""What is remembered of a sandbox between two commands, and the lock that keeps them apart.

The directory `$XDG_STATE_HOME/clusterkit/sandbox/NAME/` (0700) holds

    state.json     phase, spec, subnets, hosts
    keys/          host keys and the user's key; they outlive `down`
    known_hosts    the hosts' keys, for the inventory
    ssh_config     for `ssh -F`
    disks/         where the hosts' disks are mounted while it is up
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from clusterkit.errors import ClusterkitError, NotFound
from clusterkit.sandbox.processes import Identity
from clusterkit.sandbox.spec import SandboxSpec, check_name, spec_from_json

Phase = Literal["starting", "up", "down"]
LOCK_LIMIT = 10.0


@dataclass(frozen=True)
class HostState:
    """A host as it was last started; `init` is None while it is killed."""

    name: str
    addresses: tuple[str, ...]
    init: Identity | None = None


@dataclass(frozen=True)
class SandboxState:
    """`subnets` are remembered over `down`, so that hosts keep their addresses."""

    name: str
    phase: Phase
    subnets: tuple[str, ...] = ()
    spec: SandboxSpec | None = None
    hosts: tuple[HostState, ...] = ()
    inventory: str | None = None
    inventory_digest: str | None = None

    def host(self, name: str) -> HostState:
        """The host of that name; NotFound lists the names there are."""
        for host in self.hosts:
            if host.name == name:
                return host
        names = [host.name for host in self.hosts]
        known = f"{names[0]} to {names[-1]}" if len(names) > 4 else ", ".join(names)
        raise NotFound(f"sandbox {self.name} has no host {name!r}", f"its hosts are {known}" if names else "")

    def with_host(self, changed: HostState) -> SandboxState:
        """The same state with that host replaced."""
        return replace(
            self, hosts=tuple(changed if host.name == changed.name else host for host in self.hosts)
        )


def home() -> Path:
    """The directory of all sandboxes of this user."""
    base = os.environ.get("XDG_STATE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "clusterkit" / "sandbox"


def directory(name: str) -> Path:
    """The directory of one sandbox; InputError for what cannot be a sandbox's name."""
    check_name(name)
    return home() / name


def names() -> tuple[str, ...]:
    """Every sandbox that has a state, up or down."""
    return tuple(sorted(path.parent.name for path in home().glob("*/state.json")))


def load(name: str) -> SandboxState | None:
    """The last saved state; None where there was never such a sandbox."""
    path = directory(name) / "state.json"
    try:
        data = json.loads(path.read_text())
        return _from_json(data)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterkitError(
            f"{path} cannot be read: {error}",
            f"run `clusterkit sandbox down --forget --name {name}`: it finds what runs by its name",
        ) from error


def save(state: SandboxState) -> None:
    """The state is on disk, whole, whatever happens to this process."""
    path = directory(state.name) / "state.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(state), indent=1))
    partial.chmod(0o600)
    partial.replace(path)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Only one command at a time works on this sandbox; a second one waits `LOCK_LIMIT`, then is refused.

    Programs started meanwhile inherit the lock (see `commands.run`): if this process is killed, the next
    command does not begin before they have ended.
    """
    path = directory(name)
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    with open(path / "lock", "a") as file:
        os.set_inheritable(file.fileno(), True)
        deadline = time.monotonic() + LOCK_LIMIT
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise ClusterkitError(
                    f"another command is working on sandbox {name}",
                    "wait until it has ended, then run this again",
                )
            time.sleep(0.02)
        yield


@contextmanager
def machine_locked() -> Iterator[None]:
    """Only one sandbox at a time chooses its subnets on this machine; others wait."""
    directory = next(path for path in (Path("/run/lock"), Path("/run"), Path("/tmp")) if path.is_dir())
    with open(directory / "clusterkit-sandbox.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _from_json(data: dict[str, Any]) -> SandboxState:
    hosts = tuple(
        HostState(host["name"], tuple(host["addresses"]), Identity(**host["init"]) if host["init"] else None)
        for host in data["hosts"]
    )
    return SandboxState(
        name=data["name"],
        phase=data["phase"],
        subnets=tuple(data["subnets"]),
        spec=spec_from_json(data["spec"]) if data["spec"] else None,
        hosts=hosts,
        inventory=data["inventory"],
        inventory_digest=data["inventory_digest"],
    )
