"""What an inventory is once it has been read: hosts, groups, and each value with the line it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clusterkit.inventory.thresholds import DEFAULTS


@dataclass(frozen=True)
class Source:
    """Where a value was written, for error messages."""

    path: Path
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line is not None else str(self.path)


@dataclass(frozen=True)
class Value:
    """A variable's value as written: text from INI; text, numbers, lists and mappings from YAML."""

    raw: Any
    source: Source


@dataclass(frozen=True)
class Host:
    """One machine, and the variables that won for it (Ansible's precedence)."""

    name: str
    variables: Mapping[str, Value]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """A named set of hosts; `hosts` are its direct members, in the order of the file."""

    name: str
    hosts: tuple[str, ...]
    children: tuple[str, ...]
    variables: Mapping[str, Value]


@dataclass(frozen=True)
class Inventory:
    """A whole inventory; `hosts` and `groups` keep the order of the file."""

    path: Path
    hosts: Mapping[str, Host]
    groups: Mapping[str, Group]
    warnings: tuple[str, ...] = ()


class Secret(str):
    """Text that never shows itself: `repr()` and `format()` print `********`; `reveal()` gives the text."""

    def __repr__(self) -> str:
        return "'********'"

    def __str__(self) -> str:
        return "********"

    def __format__(self, spec: str) -> str:
        return format("********", spec)

    def reveal(self) -> str:
        """The text itself, for the one place that needs it."""
        return str.__str__(self)


@dataclass(frozen=True)
class PortRange:
    """TCP ports `first` to `last`, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def __contains__(self, port: object) -> bool:
        return isinstance(port, int) and self.first <= port <= self.last


@dataclass(frozen=True)
class Mount:
    """One shared file system that a host should have (`nfs_*`, or an entry of `mounts`)."""

    source: str
    path: str
    type: str = "nfs4"
    options: str = ""


@dataclass(frozen=True)
class Settings:
    """One host's variables, typed; the meaning of each is in the README's inventory table.

    A field that is None was not set: the default is then decided where the facts are known.
    """

    alias: str
    # How to reach it (Ansible's names without the prefix).
    address: str
    port: int | None = None
    user: str | None = None
    password: Secret | None = None
    private_key_file: str | None = None
    ssh_common_args: str = ""
    ssh_extra_args: str = ""
    connection: Literal["ssh", "local"] = "ssh"
    become: bool = False
    become_user: str = "root"
    become_password: Secret | None = None
    # The training network.
    node_ip: str | None = None
    network: str | None = None
    interface: str | None = None
    # Devices: None means all that the host has.
    devices: tuple[int, ...] | None = None
    nproc_per_node: int | None = None
    driver_min: str | None = None
    gpu_count: int | None = None
    gpu_model: str | None = None
    # Container.
    image: str | None = None
    container_runtime: Literal["docker", "podman", "none"] = "none"
    shm_size: str = "8g"
    volumes: tuple[str, ...] = ()
    container_args: tuple[str, ...] = ()
    container_user: str | None = None
    # Bare host.
    python: str = "python3"
    remote_dir: str = "~/.clusterkit"
    port_range: PortRange = field(default_factory=lambda: PortRange(30000, 65535))
    mounts: tuple[Mount, ...] = ()
    data_path: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def threshold(self, name: str) -> float:
        """Where a check of this host begins to complain: as the inventory says, else the default."""
        return self.thresholds.get(name, DEFAULTS[name])
