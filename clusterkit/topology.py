"""Hosts and their facts become nodes: who has which node rank, address, devices and global ranks."""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.inventory.model import PortRange


@dataclass(frozen=True)
class Node:
    """A host in a run. `ranks` are its global ranks in the order of their local ranks."""

    alias: str
    node_rank: int
    node_ip: str
    interface: str
    ranks: tuple[int, ...]
    devices: tuple[int, ...] | None
    python: str


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
        """The number of ranks of the whole job."""
        return sum(len(node.ranks) for node in self.nodes)
