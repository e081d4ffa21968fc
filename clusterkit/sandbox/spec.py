"""What a sandbox should be: its hosts, their users, and what they see of this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from clusterkit.errors import InputError

MAX_HOSTS = 250
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,30}")


def check_name(name: str) -> None:
    """InputError where a sandbox cannot have that name (interfaces, namespaces and a directory bear it)."""
    if not NAME_PATTERN.fullmatch(name):
        raise InputError(
            f"sandbox name {name!r} cannot be used",
            "use a small letter, then small letters, digits and '-', at most 31 characters",
        )


@dataclass(frozen=True)
class User:
    """A login user that is not root. With `password`, sshd and sudo accept it as well as the key."""

    name: str
    password: str | None = None
    sudo: Literal["none", "password", "nopasswd"] = "nopasswd"
    shell: str = "/bin/bash"


@dataclass(frozen=True)
class Bind:
    """A file or directory of this machine that every host sees at `target`."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class HostSpec:
    """One host; the defaults are those of a freshly installed Debian machine.

    `files` are written before sshd starts (absolute path to text). `environment` is what a login gets.
    `loopback_name` puts 127.0.1.1 for the own name into /etc/hosts, as Debian's installer does.
    `behind` names the host that is the only way to this one. `variables` go into the inventory. With
    `containers` Docker and Podman can run there (nothing starts them).
    """

    name: str
    port: int = 22
    user: User | None = None
    shell: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    sshd_config: tuple[str, ...] = ()
    loopback_name: bool = False
    gpus: int = 0
    nproc: int = 2
    behind: str | None = None
    containers: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SandboxSpec:
    """A whole sandbox. With `networks=2` the hosts meet on eth1, and eth0 leads to the controller only.

    `python` are interpreters of this machine that the hosts have too; the first is the inventory's
    `python`. With `shared_home` /home and /root are one directory for all hosts.
    """

    hosts: tuple[HostSpec, ...]
    name: str = "sandbox"
    networks: int = 1
    python: tuple[str, ...] = ()
    binds: tuple[Bind, ...] = ()
    shared_home: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 1 <= len(self.hosts) <= MAX_HOSTS:
            raise InputError(f"a sandbox has 1 to {MAX_HOSTS} hosts, not {len(self.hosts)}")
        if not 1 <= self.networks <= 4:
            raise InputError(f"a sandbox has 1 to 4 networks, not {self.networks}")
        self._check_hosts()

    def _check_hosts(self) -> None:
        names = [host.name for host in self.hosts]
        for name in names:
            if not re.fullmatch(r"[a-z][a-z0-9-]{0,62}", name):
                raise InputError(f"host name {name!r} cannot be used", "use small letters, digits and '-'")
            if names.count(name) > 1:
                raise InputError(f"host name {name!r} is used twice")
        for host in self.hosts:
            if host.behind is not None and (host.behind not in names or host.behind == host.name):
                raise InputError(
                    f"{host.name} is behind {host.behind!r}, which is no other host of the sandbox"
                )

    @classmethod
    def of(
        cls,
        count: int,
        *,
        name: str = "sandbox",
        networks: int = 1,
        python: tuple[str, ...] | None = None,
        binds: tuple[Bind, ...] = (),
        shared_home: bool = False,
        **every_host: Any,
    ) -> SandboxSpec:
        """`count` equal hosts `node01`, `node02`, …; further keywords are fields of `HostSpec`.

        Their interpreter is the one that runs this, unless `python` names others.
        """
        python = (sys.executable,) if python is None else python
        width = max(2, len(str(count)))
        hosts = tuple(HostSpec(f"node{number:0{width}d}", **every_host) for number in range(1, count + 1))
        return cls(hosts, name, networks, python, binds, shared_home)

    def with_host(self, host: str, **changes: Any) -> SandboxSpec:
        """The same sandbox with fields of one host changed."""
        self.host(host)
        return replace(
            self, hosts=tuple(replace(one, **changes) if one.name == host else one for one in self.hosts)
        )

    def host(self, name: str) -> HostSpec:
        """The host of that name; InputError where there is none."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise InputError(f"the sandbox has no host {name!r}")

    def to_json(self) -> dict[str, Any]:
        """Plain lists, mappings and scalars, for the state file."""
        return asdict(self)


def spec_from_json(data: Mapping[str, Any]) -> SandboxSpec:
    """The inverse of `SandboxSpec.to_json`, also after a trip through JSON."""
    hosts = tuple(_host_from_json(host) for host in data["hosts"])
    binds = tuple(Bind(**bind) for bind in data["binds"])
    return SandboxSpec(
        hosts, data["name"], data["networks"], tuple(data["python"]), binds, data["shared_home"]
    )


def _host_from_json(data: Mapping[str, Any]) -> HostSpec:
    fields = dict(data)
    fields["user"] = User(**fields["user"]) if fields["user"] else None
    fields["sshd_config"] = tuple(fields["sshd_config"])
    return HostSpec(**fields)


def differences(there: SandboxSpec, asked: SandboxSpec) -> tuple[str, ...]:
    """One sentence for each way in which the sandbox that is up is not the one asked for."""
    found = []
    if len(there.hosts) != len(asked.hosts):
        found.append(f"it has {len(there.hosts)} hosts, not {len(asked.hosts)}")
    for name in ("networks", "python", "binds", "shared_home"):
        if getattr(there, name) != getattr(asked, name):
            found.append(f"{name} is {_shown(getattr(there, name))}, not {_shown(getattr(asked, name))}")
    for name in HostSpec.__dataclass_fields__:
        changed = [
            (old, new)
            for old, new in zip(there.hosts, asked.hosts, strict=False)
            if getattr(old, name) != getattr(new, name)
        ]
        if changed:
            old, new = changed[0]
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            there_is, wanted = _shown(getattr(old, name)), _shown(getattr(new, name))
            found.append(f"{name} of {old.name}{more} is {there_is}, not {wanted}")
    return tuple(found)


def _shown(value: object) -> str:
    if isinstance(value, User):
        return value.name
    if isinstance(value, tuple):
        return " ".join(part.source if isinstance(part, Bind) else str(part) for part in value) or "none"
    if isinstance(value, Mapping):
        return " ".join(map(str, value)) or "none"
    return str(value)
