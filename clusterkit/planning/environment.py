"""The environment firewall: which variables reach the launcher and the ranks, and what was kept out.

The launcher obeys its environment before its command line, so a leftover variable in a login shell can turn
a job of many nodes into many jobs of one. Therefore nothing passes but an allow-list of names, our own
variables and what the user declared. Who wins for one name, weakest first:

1. the host's login environment, for the names in `keep`
2. ours where the user may know better (interfaces, unbuffered output)
3. `env_NAME` of the inventory
4. `--env-file`, which only the ranks see
5. `--env NAME=VALUE`
6. ours where nobody may differ (`PORT_RANGE`, `CLUSTERKIT_*`): giving one of these is an error

A proxy never reaches the launcher, whose rendezvous is plain HTTP between the nodes. One that the user gave
(or kept with `--keep-proxy`) is for the ranks, with all node addresses in `NO_PROXY`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from clusterkit.errors import InputError
from clusterkit.inventory.model import PortRange, Secret
from clusterkit.planning.topology import Node, Topology
from clusterkit.planning.variables import OVERRIDES, Override, is_proxy, kept_names, override

MASK = "********"


@dataclass(frozen=True)
class Wishes:
    """What the user said about variables: `--env`, `--env-file`, `--keep-proxy`."""

    given: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    keep_proxy: bool = False


@dataclass(frozen=True)
class Environment:
    """The variables of one node.

    `keep` are names that pass from the login environment, `set` what the launcher and the ranks get on top,
    `secrets` what the ranks alone get. `removed` says why a name that was found did not pass. `private` are
    the names in `set` whose values the user wrote: these are masked when they are shown.
    """

    keep: tuple[str, ...]
    set: Mapping[str, str] = field(repr=False)
    secrets: Mapping[str, Secret]
    removed: Mapping[str, str]
    private: frozenset[str]

    @property
    def secrets_json(self) -> str:
        """The text of `secrets.json`: for a 0600 file on the host, and for nothing else."""
        return json.dumps({name: value.reveal() for name, value in self.secrets.items()})

    def shown(self, show_env: bool) -> dict[str, str]:
        """`set` as it may be printed: the user's values masked unless `show_env`."""
        return {
            name: masked(value) if name in self.private and not show_env else value
            for name, value in self.set.items()
        }


def firewall(
    topology: Topology,
    node: Node,
    *,
    run_id: str,
    login: Mapping[str, str],
    declared: Mapping[str, str],
    wishes: Wishes,
    attempt: int = 0,
    checkpoint_dir: str = "",
) -> Environment:
    """The environment of one node's launcher and ranks; `login` is what its login shell has.

    `declared` are the `env_*` variables of the host. Raises InputError for a variable of the user's that
    would override the launcher's command line, or that only clusterkit may set.
    """
    refuse_overrides(node.alias, declared, wishes)
    user = {**declared, **wishes.given}
    proxies = _proxies(login, user, wishes)
    private = {name: value for name, value in user.items() if not is_proxy(name)}
    launcher = {**_defaults(node), **private}
    bypassed = any(_is_bypass(name) for name in (*user, *wishes.secrets))
    if proxies or bypassed or any(is_proxy(name) for name in wishes.secrets):
        bypass = _no_proxy({**login, **user}, wishes.secrets, [each.node_ip for each in topology.nodes])
        launcher.update({"NO_PROXY": bypass, "no_proxy": bypass})
    launcher.update(_fixed(run_id, attempt, node, topology.launcher_ports[node.node_rank]))
    if checkpoint_dir:
        launcher["CLUSTERKIT_CHECKPOINT_DIR"] = checkpoint_dir
    secrets = {**proxies, **_from_file(wishes)}
    return Environment(
        keep=tuple(name for name in kept_names() if name not in launcher),
        set=MappingProxyType(dict(sorted(launcher.items()))),
        secrets=MappingProxyType(secrets),
        removed=MappingProxyType(_removed(login, {**launcher, **secrets})),
        private=frozenset([*private, *(name for name in launcher if is_proxy(name) and bypassed)]),
    )


def refuse_overrides(host: str, declared: Mapping[str, str], wishes: Wishes) -> None:
    """Raise InputError for the user's first variable that nobody may set; needs no host to be asked."""
    refuse(wishes.given, "--env ", "on the command line")
    refuse(wishes.secrets, "--env-file: ", "in that file")
    refuse(declared, f"host {host}: env_", "in the inventory")


def refuse(variables: Mapping[str, object], prefix: str, where: str) -> None:
    """Raise InputError for the first name that a user must not set; `prefix` is how they wrote it.

    The message says which option does what the variable was meant for, and never the value.
    """
    for name in variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InputError(
                f"{prefix}{name}: not the name of an environment variable",
                f"use letters, digits and underscores, and begin with no digit ({where})",
            )
        if name.startswith("CLUSTERKIT_"):
            raise InputError(f"{prefix}{name}: clusterkit sets this variable itself", f"take it out {where}")
        found = override(name)
        if found is not None:
            raise InputError(
                f"{prefix}{name} cannot be set: it {found.effect}",
                f"{found.instead}; take {name} out {where}",
            )


def masked(value: str) -> str:
    """What is shown instead of a value; its length does not show through."""
    return MASK


def _defaults(node: Node) -> dict[str, str]:
    """Ours, where the user may know better.

    NCCL takes a bare name as a prefix (`bond0` would match `bond0.100` too); `=` asks for exactly this one.
    gloo knows names only. Both cure a host name that resolves to loopback.
    """
    return {
        "NCCL_SOCKET_IFNAME": f"={node.interface}",
        "GLOO_SOCKET_IFNAME": node.interface,
        "PYTHONUNBUFFERED": "1",
    }


def _fixed(run_id: str, attempt: int, node: Node, ports: PortRange) -> dict[str, str]:
    """Ours, where nobody may differ. The launcher wants `lo:hi` and includes both ends.

    Another launch reads `CLUSTERKIT_DEVICES` on the host, to know which GPUs this run has ("" for CPUs).
    """
    return {
        "CLUSTERKIT_RUN_ID": run_id,
        "CLUSTERKIT_ATTEMPT": str(attempt),
        "CLUSTERKIT_DEVICES": ",".join(map(str, node.devices or ())),
        "PORT_RANGE": f"{ports.first}:{ports.last}",
    }


def _proxies(login: Mapping[str, str], user: Mapping[str, str], wishes: Wishes) -> dict[str, Secret]:
    """Proxies for the ranks; a proxy's address may hold a password, so it travels as a secret."""
    kept = {name: value for name, value in login.items() if wishes.keep_proxy and is_proxy(name)}
    given = {name: value for name, value in user.items() if is_proxy(name)}
    return {name: Secret(value) for name, value in {**kept, **given}.items() if not _is_bypass(name)}


def _from_file(wishes: Wishes) -> dict[str, Secret]:
    """What the ranks get from `--env-file`: without the names that `--env` has its own value for."""
    return {
        name: value
        for name, value in wishes.secrets.items()
        if name not in wishes.given and not _is_bypass(name)
    }


def _is_bypass(name: str) -> bool:
    return name.upper() == "NO_PROXY"


def _no_proxy(variables: Mapping[str, str], secrets: Mapping[str, Secret], addresses: Sequence[str]) -> str:
    """What is already excepted from proxies, then every node address, each once."""
    written = [variables.get("NO_PROXY", ""), variables.get("no_proxy", "")]
    written += [value.reveal() for name, value in secrets.items() if _is_bypass(name)]
    entries = [entry.strip() for text in written for entry in text.split(",")]
    return ",".join(
        dict.fromkeys(entry for entry in [*entries, "localhost", "127.0.0.1", *addresses] if entry)
    )


def _removed(login: Mapping[str, str], passed: Mapping[str, object]) -> dict[str, str]:
    """Names of the login environment that matter to a job and do not pass as they are, with the reason."""
    reasons = {name: _why_removed(name) for name in sorted(login) if name not in passed or name in OVERRIDES}
    return {name: why for name, why in reasons.items() if why}


def _why_removed(name: str) -> str:
    found: Override | None = override(name)
    if found is not None:
        return found.effect
    if _is_bypass(name):
        return ""
    if is_proxy(name):
        return "would catch the rendezvous between the nodes; --keep-proxy keeps it for the script"
    if re.match(r"(NCCL|GLOO|FLAGS|OMP|MKL)_", name):
        return f"tunes the job on this host only; to have it, write env_{name}=… in the inventory"
    return ""
