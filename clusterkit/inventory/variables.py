"""Every variable that clusterkit reads, with its names and kind; and names that are near but not ours."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from clusterkit.inventory import kinds, nearness
from clusterkit.inventory.kinds import Kind

PREFIX = "clusterkit_"

ENVIRONMENT = re.compile(r"(?:clusterkit_)?env_(?P<name>[A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Variable:
    """One setting. `names` are its bare names, the strongest first; all may be written with `clusterkit_`.

    `strict`: a value that does not fit is an error under the bare name too, since no other tool means
    something else by it. `secret`: its value never shows in a message.
    """

    setting: str
    names: tuple[str, ...]
    kind: Kind
    strict: bool = False
    secret: bool = False


def _ansible(setting: str, kind: Kind, *names: str, secret: bool = False) -> Variable:
    return Variable(setting, tuple(f"ansible_{name}" for name in names), kind, strict=True, secret=secret)


def _ours(name: str, kind: Kind) -> Variable:
    return Variable(name, (name,), kind)


# Where Ansible's ssh and sudo plugins know several names, the more special one wins there too.
VARIABLES = (
    _ansible("address", kinds.address, "ssh_host", "host"),
    _ansible("port", kinds.whole_number(1, 65535), "ssh_port", "port"),
    _ansible("user", kinds.user, "ssh_user", "user"),
    _ansible("password", kinds.secret, "ssh_password", "ssh_pass", "password", secret=True),
    _ansible("private_key_file", kinds.text, "ssh_private_key_file", "private_key_file"),
    _ansible("ssh_common_args", kinds.text, "ssh_common_args"),
    _ansible("ssh_extra_args", kinds.text, "ssh_extra_args"),
    _ansible("connection", kinds.connection, "connection"),
    _ansible("become", kinds.truth, "become", "sudo"),
    _ansible("become_user", kinds.user, "sudo_user", "become_user"),
    _ansible("become_password", kinds.secret, "sudo_pass", "become_pass", "become_password", secret=True),
    _ours("node_ip", kinds.ipv4),
    _ours("network", kinds.network),
    _ours("interface", kinds.interface),
    _ours("devices", kinds.devices),
    _ours("nproc_per_node", kinds.whole_number(1, 1024)),
    _ours("driver_min", kinds.version),
    _ours("gpu_count", kinds.whole_number(0, 1024)),
    _ours("gpu_model", kinds.text),
    _ours("image", kinds.image),
    _ours("container_runtime", kinds.one_of("docker", "podman", "none")),
    _ours("shm_size", kinds.size),
    _ours("volumes", kinds.volumes),
    _ours("container_args", kinds.words),
    _ours("container_user", kinds.container_user),
    _ours("python", kinds.python),
    _ours("remote_dir", kinds.directory),
    _ours("port_range", kinds.port_range),
    _ours("nfs_source", kinds.nfs_source),
    _ours("nfs_path", kinds.mount_point),
    _ours("nfs_options", kinds.mount_options),
    _ours("mounts", kinds.mounts),
    _ours("data_path", kinds.mount_point),
)

NAMES = frozenset(name for variable in VARIABLES for name in variable.names)

# Near to one of ours, but a word in its own right (other tools' variables), or Ansible's own.
NOT_SLIPS = frozenset(
    {
        "cpu_count",
        "cpu_model",
        "device",
        "images",
        "interfaces",
        "mount",
        "networks",
        "nfs_options_v3",
        "pythons",
        "volume",
        "ansible_become_exe",
        "ansible_become_flags",
        "ansible_become_method",
        "ansible_become_plugin",
        "ansible_devices",
        "ansible_ssh_args",
        "ansible_ssh_executable",
        "ansible_ssh_retries",
        "ansible_ssh_timeout",
        "ansible_su_pass",
        "ansible_su_user",
    }
)


@functools.lru_cache(maxsize=4096)  # the same names come up for every host of a group
def meant_by(name: str) -> str | None:
    """The bare name of ours that `name` is a typing slip of, or None."""
    return None if name in NAMES or name in NOT_SLIPS else nearness.slip_of(name, sorted(NAMES))
