"""The plan of one host's root file system and sshd: everything that `init` needs to know, as data."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clusterkit.sandbox import accounts, containers, disks, gpu
from clusterkit.sandbox.containers import ControlGroups
from clusterkit.sandbox.files import Directory, File
from clusterkit.sandbox.requirements import SYSTEM_PATH, path_of
from clusterkit.sandbox.spec import Bind, HostSpec
from clusterkit.sandbox.visibility import Hidden

SSHD_CONFIG = "/etc/ssh/sshd_config"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
SSHD_LOG = "/var/log/sshd.log"
SFTP_SERVER = "/usr/lib/openssh/sftp-server"


@dataclass(frozen=True)
class HostPlan:
    """What `init` reads from stdin. `netns`, `disk` and the binds' sources are paths of this machine."""

    hostname: str
    netns: str
    disk: str
    boot_id: str
    hide: tuple[Hidden, ...]
    binds: tuple[Bind, ...]
    groups: tuple[ControlGroups, ...]
    empty: tuple[str, ...]
    remove: tuple[str, ...]
    directories: tuple[Directory, ...]
    files: tuple[File, ...]
    sshd: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain lists, mappings and scalars."""
        return asdict(self)


@dataclass(frozen=True)
class Surroundings:
    """What all hosts of a sandbox share."""

    sandbox: str
    directory: Path
    mark: str
    hide: tuple[Hidden, ...]
    binds: tuple[Bind, ...]
    empty: tuple[str, ...]
    addresses: Mapping[str, str]
    user_key: str
    python: str
    texts: Mapping[str, str] = field(default_factory=dict)


def make_plan(host: HostSpec, netns: str, disk: Path, host_key: Path, around: Surroundings) -> HostPlan:
    """The host's plan. `around.texts` has this machine's passwd, shadow and group."""
    # A host that starts again has files of the account that it was given first.
    account = accounts.account_of(host.user, disks.written(disk, "/etc/passwd") + around.texts["passwd"])
    return HostPlan(
        hostname=host.name,
        netns=netns,
        disk=str(disk),
        boot_id=str(uuid.uuid4()),
        hide=around.hide,
        binds=(*around.binds, *(containers.stores(around.directory, host.name) if host.containers else ())),
        groups=containers.hierarchies() if host.containers else (),
        empty=around.empty,
        remove=("/etc/ssh/sshd_config.d", "/.dockerenv", *_foreign_host_keys()),
        directories=_directories(account, around),
        files=(
            *_system_files(host, around),
            *_account_files(host, account, around),
            *_ssh_files(host, account, host_key, around.user_key),
            *gpu.files(host.name, host.gpus, around.python),
            *(containers.files(around.mark, host.name) if host.containers else ()),
            *(File(path, content) for path, content in host.files.items()),
        ),
        sshd=(path_of("sshd"), "-D", "-f", SSHD_CONFIG, "-E", SSHD_LOG),
    )


def machine_id(sandbox: str, host: str) -> str:
    """The host's /etc/machine-id: its own, and the same after each start."""
    return hashlib.sha256(f"clusterkit sandbox {sandbox} {host}".encode()).hexdigest()[:32]


def hosts_file(host: HostSpec, addresses: Mapping[str, str]) -> str:
    """/etc/hosts: localhost, the own name, the others."""
    lines = ["127.0.0.1\tlocalhost"]
    if host.loopback_name:
        lines.append(f"127.0.1.1\t{host.name}")
    lines += [
        f"{address}\t{name}"
        for name, address in addresses.items()
        if name != host.name or not host.loopback_name
    ]
    return "\n".join([*lines, "::1\tlocalhost ip6-localhost ip6-loopback"]) + "\n"


def sshd_config(host: HostSpec) -> str:
    """sshd's defaults, but for what a sandbox needs; `host.sshd_config` comes first, so that it wins."""
    password = host.user is not None and host.user.password is not None
    lines = [
        *host.sshd_config,
        f"Port {host.port}",
        f"HostKey {HOST_KEY}",
        "UsePAM no",
        "PermitRootLogin prohibit-password",
        f"PasswordAuthentication {'yes' if password else 'no'}",
        "KbdInteractiveAuthentication no",
        "PidFile /run/sshd.pid",
        "PrintMotd no",
        "AcceptEnv LANG LC_*",
        f"Subsystem sftp {SFTP_SERVER}",
    ]
    if host.environment:
        lines.append("SetEnv " + " ".join(f'{name}="{value}"' for name, value in host.environment.items()))
    return "\n".join(lines) + "\n"


def _directories(account: accounts.Account, around: Surroundings) -> tuple[Directory, ...]:
    owner = (account.uid, account.gid)
    # An interpreter below /root is of no use to a user who may not pass through /root.
    passed_through = account != accounts.ROOT and any(
        bind.target.startswith("/root/") for bind in around.binds
    )
    return (
        Directory("/run/sshd"),
        Directory("/run/lock", 0o1777),
        Directory("/var/log"),
        Directory("/root", 0o711 if passed_through else 0o700, skeleton=True),
        Directory(account.home, 0o700, *owner, skeleton=True),
        Directory(f"{account.home}/.ssh", 0o700, *owner),
    )


def _system_files(host: HostSpec, around: Surroundings) -> tuple[File, ...]:
    environment = {"PATH": SYSTEM_PATH, **host.environment}
    return (
        File("/etc/hostname", host.name + "\n"),
        File("/etc/hosts", hosts_file(host, around.addresses)),
        File("/etc/machine-id", machine_id(around.sandbox, host.name) + "\n", 0o444),
        File("/etc/fstab", "# Nothing is mounted at boot.\n"),
        File("/etc/environment", "".join(f'{name}="{value}"\n' for name, value in environment.items())),
    )


def _account_files(host: HostSpec, account: accounts.Account, around: Surroundings) -> tuple[File, ...]:
    texts = dict(around.texts)
    texts["shadow"] = accounts.with_account(texts["shadow"], accounts.shadow_line("root", None))
    files: list[File] = []
    if host.shell is not None:
        texts["passwd"] = accounts.with_account(
            texts["passwd"], accounts.passwd_line(accounts.ROOT, host.shell)
        )
    if host.user is not None and account != accounts.ROOT:
        texts["passwd"] = accounts.with_account(
            texts["passwd"], accounts.passwd_line(account, host.user.shell)
        )
        texts["shadow"] = accounts.with_account(
            texts["shadow"], accounts.shadow_line(account.name, host.user.password)
        )
        texts["group"] = accounts.with_account(texts["group"], f"{account.name}:x:{account.gid}:")
        files += _sudoers(host)
    modes = {"passwd": 0o644, "group": 0o644, "shadow": 0o640}
    return (*files, *(File(f"/etc/{name}", texts[name], mode) for name, mode in modes.items()))


def _sudoers(host: HostSpec) -> Sequence[File]:
    user = host.user
    if user is None or user.sudo == "none":
        return ()
    free = "NOPASSWD: " if user.sudo == "nopasswd" else ""
    return (File(f"/etc/sudoers.d/{user.name}", f"{user.name} ALL=(ALL:ALL) {free}ALL\n", 0o440),)


def _ssh_files(host: HostSpec, account: accounts.Account, host_key: Path, user_key: str) -> tuple[File, ...]:
    public = host_key.with_name(f"{host_key.name}.pub").read_text()
    return (
        File(SSHD_CONFIG, sshd_config(host)),
        File(HOST_KEY, host_key.read_text(), 0o600),
        File(f"{HOST_KEY}.pub", public),
        File(f"{account.home}/.ssh/authorized_keys", user_key + "\n", 0o600, account.uid, account.gid),
    )


def _foreign_host_keys() -> tuple[str, ...]:
    return tuple(str(path) for path in sorted(Path("/etc/ssh").glob("ssh_host_*")))
