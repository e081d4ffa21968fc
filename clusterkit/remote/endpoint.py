"""Where an ssh connection leads and by which means: what ssh_config and the inventory resolved to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clusterkit.inventory.model import Secret

HostKeyRule = Literal["trust first", "strict", "off"]


@dataclass(frozen=True)
class Endpoint:
    """One sshd, resolved. `label` is the inventory alias, or a bastion's name as it was written."""

    label: str
    address: str
    port: int
    user: str
    host_key_alias: str | None = None
    host_key_rule: HostKeyRule = "trust first"
    known_hosts: tuple[Path, ...] = ()
    global_known_hosts: tuple[Path, ...] = ()
    hash_names: bool = False
    identity_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str | None = None
    methods: tuple[str, ...] = ("publickey", "keyboard-interactive", "password")
    password: Secret | None = None
    ask: bool = True
    proxy_command: str | None = None
    jump: Endpoint | None = None
    family: Literal["any", "inet", "inet6"] = "any"
    bind_address: str | None = None

    @property
    def where(self) -> str:
        """Address and port as people write them."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    @property
    def named(self) -> str:
        """The name, with address and port where they say more."""
        return self.where if self.label == self.address else f"{self.label} ({self.where})"

    @property
    def host_key_name(self) -> str:
        """Under which name known_hosts keeps this sshd's key."""
        if self.host_key_alias:
            return self.host_key_alias.lower()
        name = self.address.lower()
        return name if self.port == 22 else f"[{name}]:{self.port}"
