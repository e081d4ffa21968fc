"""How the hosts are reached: the inventory, the known_hosts file and an ssh configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from clusterkit.errors import ClusterkitError
from clusterkit.sandbox import keys
from clusterkit.sandbox.spec import HostSpec, SandboxSpec
from clusterkit.sandbox.state import SandboxState

FIRST_LINE = "# Written by `clusterkit sandbox up`"


def inventory_text(state: SandboxState, spec: SandboxSpec, directory: Path) -> str:
    """An inventory that reaches every host without any other configuration."""
    lines = [
        f"{FIRST_LINE} for the sandbox {spec.name}; `sandbox down` removes it if it was not edited.",
        "[nodes]",
    ]
    lines += [_inventory_host(host, state, directory) for host in spec.hosts]
    lines += [
        "",
        "[all:vars]",
        f"ansible_ssh_private_key_file={_value(str(directory / 'keys' / 'user'))}",
        f"ansible_ssh_common_args={_value(ssh_options(directory))}",
    ]
    if spec.python:
        lines.append(f"python={_value(spec.python[0])}")
        lines.append(f"ansible_python_interpreter={_value(spec.python[0])}")
    return "\n".join(lines) + "\n"


def ssh_options(directory: Path) -> str:
    """Options with which ssh knows the hosts' keys, asks nothing, and touches no file of the user's."""
    return f'-o "UserKnownHostsFile={directory}/known_hosts" -o StrictHostKeyChecking=yes'


def known_hosts_text(state: SandboxState, spec: SandboxSpec, directory: Path) -> str:
    """One line for each host and address."""
    lines = []
    for host, there in zip(spec.hosts, state.hosts, strict=True):
        public = keys.public(directory / "keys" / host.name)
        lines += [keys.known_hosts_line(address, host.port, public) for address in there.addresses]
    return "\n".join(lines) + "\n"


def ssh_config_text(state: SandboxState, spec: SandboxSpec, directory: Path) -> str:
    """For `ssh -F FILE node01`; also what a host behind another one is reached with."""
    blocks = []
    for host, there in zip(spec.hosts, state.hosts, strict=True):
        block = [
            f"Host {host.name} {there.addresses[0]}",
            f"    HostName {there.addresses[0]}",
            f"    Port {host.port}",
            f"    User {host.user.name if host.user else 'root'}",
        ]
        if host.behind is not None:
            block.append(f"    ProxyJump {host.behind}")
        blocks.append("\n".join(block))
    common = [
        "Host *",
        f'    IdentityFile "{directory}/keys/user"',
        "    IdentitiesOnly yes",
        f'    UserKnownHostsFile "{directory}/known_hosts"',
        "    StrictHostKeyChecking yes",
    ]
    return "\n\n".join([*blocks, "\n".join(common)]) + "\n"


def write_files(state: SandboxState, spec: SandboxSpec, directory: Path) -> None:
    """known_hosts and ssh_config are those of the hosts that are up."""
    (directory / "known_hosts").write_text(known_hosts_text(state, spec, directory))
    (directory / "ssh_config").write_text(ssh_config_text(state, spec, directory))


def check_inventory_path(path: Path) -> None:
    """Refuses to overwrite what a person wrote."""
    if path.is_dir() or not path.parent.is_dir():
        raise ClusterkitError(f"the inventory cannot be written to {path}", "give --inventory FILE")
    if path.exists() and not path.read_text(errors="replace").startswith(FIRST_LINE):
        raise ClusterkitError(
            f"{path} is there already, and no sandbox wrote it",
            "give --inventory FILE, or move that file away",
        )


def digest(text: str) -> str:
    """Tells whether an inventory is still as we wrote it."""
    return hashlib.sha256(text.encode()).hexdigest()


def remove_inventory(state: SandboxState) -> str | None:
    """The inventory is gone where it is still as we wrote it; else a sentence that says that it stays."""
    if state.inventory is None:
        return None
    path = Path(state.inventory)
    if not path.is_file():
        return None
    if digest(path.read_text(errors="replace")) != state.inventory_digest:
        return f"{path} was edited and stays"
    path.unlink()
    return None


def _inventory_host(host: HostSpec, state: SandboxState, directory: Path) -> str:
    addresses = state.host(host.name).addresses
    variables: dict[str, str] = {
        "ansible_host": addresses[0],
        "ansible_user": host.user.name if host.user else "root",
        "node_ip": addresses[-1],
    }
    if host.port != 22:
        variables["ansible_port"] = str(host.port)
    if not host.gpus:
        variables["nproc_per_node"] = str(host.nproc)
    if host.behind is not None:
        variables["ansible_ssh_common_args"] = f'-F "{directory}/ssh_config" -o ProxyJump={host.behind}'
    return " ".join([host.name, *_assignments({**variables, **host.variables})])


def _assignments(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={_value(value)}" for name, value in variables.items()]


def _value(text: str) -> str:
    """Quoted where INI would split or cut it."""
    if text and not set(text) & set(" \t#'\"\\;="):
        return text
    return json.dumps(text) if "'" in text else f"'{text}'"
