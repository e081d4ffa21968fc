"""Hosts and their facts become nodes: who has which node rank, address, devices and global ranks.

    arrange   assign + ports.plan → Topology; arrange_able without the hosts that cannot take part
    assign    addresses.choose (which address the others use) and devices.choose (which GPUs, how many ranks)

Everything here is pure. What was decided without being asked comes back as notes, for a person to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clusterkit.errors import HostError, NodeError
from clusterkit.facts import Facts
from clusterkit.inventory.model import PortRange, Settings
from clusterkit.planning import addresses, ports
from clusterkit.planning import devices as device_shares
from clusterkit.planning.roles import Role
from clusterkit.probes import HOST, KERNEL, LISTENING, PYTHON, RUNS
from clusterkit.probes.python import host_python


@dataclass(frozen=True)
class Node:
    """A host in a run. `ranks` are its global ranks in the order of their local ranks.

    `servers` are the numbers of its parameter servers; a host may have these alone. `devices` are the host's
    own numbers, `python` is the host's interpreter, also where a container is used.
    """

    alias: str
    node_rank: int
    node_ip: str
    interface: str
    ranks: tuple[int, ...]
    devices: tuple[int, ...] | None
    python: str
    servers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Topology:
    """All nodes in node-rank order, and the ports that the run owns on every one of them.

    `port_window` holds `channel_port`, `master_port` and the ports that the launcher draws from
    (`launcher_ports`, a sub-range for each node rank: disjoint where nodes share a machine).
    """

    nodes: tuple[Node, ...]
    port_window: PortRange
    channel_port: int
    master_port: int
    launcher_ports: tuple[PortRange, ...]

    @property
    def world_size(self) -> int:
        """The number of ranks of the whole job; parameter servers are none."""
        return sum(len(node.ranks) for node in self.nodes)

    @property
    def server_endpoints(self) -> tuple[str, ...]:
        """`IP:PORT` of every parameter server, by its number."""
        return tuple(
            f"{node.node_ip}:{self.launcher_ports[node.node_rank].first + place}"
            for node in self.nodes
            for place in range(len(node.servers))
        )

    @property
    def trainer_endpoints(self) -> tuple[str, ...]:
        """`IP:PORT` of every trainer in parameter-server mode, by its rank."""
        return tuple(
            f"{node.node_ip}:{self.launcher_ports[node.node_rank].first + len(node.servers) + place}"
            for node in self.nodes
            for place in range(len(node.ranks))
        )


@dataclass(frozen=True)
class Assignment:
    """The nodes in node-rank order, and what was decided without being asked."""

    nodes: tuple[Node, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrangement:
    """A whole topology, and what was decided without being asked."""

    topology: Topology
    notes: tuple[str, ...] = ()


def arrange(
    members: Sequence[Settings],
    facts: Mapping[str, Facts],
    run_id: str,
    *,
    nproc_per_node: int | None = None,
    devices: tuple[int, ...] | None = None,
    roles: Mapping[str, Role] | None = None,
    in_use: bool = True,
) -> Arrangement:
    """Nodes and ports of the run `run_id`; `nproc_per_node` and `devices` are the command line's and win.

    Without `in_use` the ports are those of a run whose hosts use none: what is in the way can then be told.
    Raises TopologyError where the inventory and the hosts do not make up a job (NodeError where one host does
    not fit in, PortsTaken where no ports are left), ProbeFailed where a fact that this needs is missing.
    """
    assigned = assign(members, facts, nproc_per_node=nproc_per_node, devices=devices, roles=roles)
    wanted = [_host_ports(s, facts[s.alias], node) for s, node in zip(members, assigned.nodes, strict=True)]
    if not in_use:
        wanted = [replace(each, used={}, windows={}) for each in wanted]
    planned = ports.plan(wanted, run_id)
    topology = Topology(
        assigned.nodes, planned.window, planned.channel_port, planned.master_port, planned.launcher_ports
    )
    return Arrangement(topology, assigned.notes + planned.notes)


def arrange_able(
    members: Sequence[Settings], facts: Mapping[str, Facts], run_id: str, *, in_use: bool = True
) -> tuple[Arrangement | None, dict[str, HostError]]:
    """The run of those members that could take part in one, None without any; and why the others could not.

    Raises TopologyError where those that could do not make up a job together.
    """
    able = list(members)
    unable: dict[str, HostError] = {}
    while able:
        try:
            return arrange(able, facts, run_id, in_use=in_use), unable
        except (NodeError, HostError) as error:
            unable[error.host] = _about(error)
            able = [settings for settings in able if settings.alias != error.host]
    return None, unable


def _about(error: NodeError | HostError) -> HostError:
    hint = error.hint or f"look at {error.host} by hand, then try again"
    return HostError(error.host, error.message.removeprefix(f"{error.host}: "), hint)


def assign(
    members: Sequence[Settings],
    facts: Mapping[str, Facts],
    *,
    nproc_per_node: int | None = None,
    devices: tuple[int, ...] | None = None,
    roles: Mapping[str, Role] | None = None,
) -> Assignment:
    """Nodes in the order of `members`: node rank, address, devices, global ranks (unequal counts are fine).

    Raises TopologyError and ProbeFailed as `arrange` does.
    """
    chosen = addresses.choose(members, facts)
    if roles is None:
        shares = _shares(members, facts, nproc_per_node, devices)
    else:
        shares = [device_shares.Share(roles[settings.alias].trainers, None) for settings in members]
    nodes: list[Node] = []
    first = first_server = 0
    for node_rank, (settings, address, share) in enumerate(
        zip(members, chosen.addresses, shares, strict=True)
    ):
        ranks = tuple(range(first, first + share.ranks))
        first += share.ranks
        python = facts[settings.alias].get(PYTHON)
        path = python.path if python else host_python(settings)
        count = roles[settings.alias].servers if roles else 0
        servers = tuple(range(first_server, first_server + count))
        first_server += count
        nodes.append(
            Node(
                settings.alias, node_rank, address.ip, address.interface, ranks, share.devices, path, servers
            )
        )
    return Assignment(tuple(nodes), chosen.notes + tuple(share.note for share in shares if share.note))


def _shares(
    members: Sequence[Settings],
    facts: Mapping[str, Facts],
    nproc_per_node: int | None,
    wanted: tuple[int, ...] | None,
) -> list[device_shares.Share]:
    shares = [
        device_shares.choose(settings, facts[settings.alias], nproc_per_node, wanted) for settings in members
    ]
    device_shares.refuse_sharing(members, facts, shares)
    return shares


def machine(settings: Settings, facts: Facts) -> str:
    """A name that is equal for two hosts of the inventory if they may be one machine."""
    host = facts[HOST]
    return host.machine_id or host.boot_id or f"alias {settings.alias}"


def _host_ports(settings: Settings, facts: Facts, node: Node) -> ports.HostPorts:
    kernel = facts[KERNEL]
    listening = facts[LISTENING]
    return ports.HostPorts(
        alias=settings.alias,
        machine=machine(settings, facts),
        local_ranks=len(node.ranks) + len(node.servers),
        port_range=settings.port_range,
        ephemeral=kernel.ephemeral,
        reserved=kernel.reserved,
        used={port: listening.described(port) for port in listening.ports},
        windows={run.run_id: run.ports for run in facts[RUNS].live},
    )
