"""Parameter-server mode: how many servers and trainers each host has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from clusterkit.errors import InputError

SERVERS, TRAINERS = "servers", "trainers"


@dataclass(frozen=True)
class Role:
    """What one host does: so many parameter servers, and so many trainers."""

    servers: int = 0
    trainers: int = 0


@dataclass(frozen=True)
class Wanted:
    """What was asked for: counts of the whole job, and the inventory groups `[servers]`, `[trainers]`.

    A count that is None was not given; a group is None where the inventory has none of that name.
    """

    servers: int | None = None
    trainers: int | None = None
    server_hosts: Collection[str] | None = None
    trainer_hosts: Collection[str] | None = None
    nproc_per_node: Mapping[str, int] = field(default_factory=dict)


def share_out(aliases: Sequence[str], wanted: Wanted) -> dict[str, Role]:
    """Each host's role, in the order of the inventory; hosts that have none are left out.

    A count is spread evenly over the hosts of its group, or over all hosts. Without a count, every host of
    the group has one server, or as many trainers as its `nproc_per_node` says. Raises InputError.
    """
    servers = _spread(aliases, SERVERS, wanted.servers, wanted.server_hosts, {})
    trainers = _spread(aliases, TRAINERS, wanted.trainers, wanted.trainer_hosts, wanted.nproc_per_node)
    roles = {alias: Role(servers.get(alias, 0), trainers.get(alias, 0)) for alias in aliases}
    return {alias: role for alias, role in roles.items() if role.servers or role.trainers}


def _spread(
    aliases: Sequence[str],
    name: str,
    count: int | None,
    group: Collection[str] | None,
    each: Mapping[str, int],
) -> dict[str, int]:
    hosts = [alias for alias in aliases if group is None or alias in group]
    if not hosts:
        raise InputError(
            f"no host of the inventory's group [{name}] takes part", f"see --limit, or give --{name} a number"
        )
    if count is not None:
        base, more = divmod(count, len(hosts))
        return {alias: base + (place < more) for place, alias in enumerate(hosts)}
    if group is None:
        raise InputError(
            f"--run-mode ps: how many {name}?",
            f"give --{name} a number, or write a group [{name}] in the inventory",
        )
    return {alias: each.get(alias, 1) for alias in hosts}
