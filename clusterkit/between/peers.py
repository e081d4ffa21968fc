"""The hosts between which something is proved: their addresses on the training network, and which ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.facts import NOT_FOUND, Facts
from clusterkit.inventory.model import PortRange, Settings
from clusterkit.planning import addresses
from clusterkit.probes import CONTAINER, KERNEL, NETWORK, PYTHON
from clusterkit.probes.python import host_python
from clusterkit.steps import Fleet

# How far from a wanted port the next free one may be.
_SEARCH = 64
KERNELS_CHOICE = (0, 0)
_OLDEST_PYTHON = (3, 6)


@dataclass(frozen=True)
class Peer:
    """One host on the training network. `mtu` in bytes, `speed` in Mbit/s where the driver knows it.

    `runtime` calls the container runtime where the host's own Python cannot run the proof, and its image can.
    """

    alias: str
    ip: str
    interface: str
    mtu: int
    speed: int | None
    python: str
    runtime: tuple[str, ...] = ()

    @property
    def loopback(self) -> bool:
        """True where all nodes are one machine."""
        return self.ip.startswith("127.")


def peers(fleet: Fleet, hosts: Sequence[str]) -> tuple[Peer, ...]:
    """Those of `hosts` that answered and have an address for it, in the order of the inventory.

    Raises TopologyError where nobody can say which address it is, ProbeFailed where a fact is missing.
    """
    members = [each for each in fleet.members.values() if each.alias in fleet.facts]
    nodes = fleet.topology.nodes if fleet.topology else ()
    chosen = {node.alias: (node.node_ip, node.interface) for node in nodes}
    if len(chosen) < len(members):
        # A host may not fit into the job for another reason than its address.
        found = addresses.fitting(members, fleet.facts)
        chosen = {**{alias: (each.ip, each.interface) for alias, each in found.items()}, **chosen}
    wanted = [each for each in members if each.alias in hosts and each.alias in chosen]
    return tuple(_peer(each, fleet, *chosen[each.alias]) for each in wanted)


def _peer(settings: Settings, fleet: Fleet, ip: str, interface: str) -> Peer:
    facts = fleet.facts[settings.alias]
    link = facts[NETWORK].interfaces.get(interface)
    python = facts.get(PYTHON)
    return Peer(
        alias=settings.alias,
        ip=ip,
        interface=interface,
        mtu=link.mtu if link else 1500,
        speed=link.speed if link else None,
        python=python.path if python else host_python(settings),
        runtime=_runtime(facts) if _unfit(facts) else (),
    )


def _unfit(facts: Facts) -> bool:
    """True if the host has no Python, or one that is too old."""
    python, failure = facts.get(PYTHON), facts.failure(PYTHON)
    if python is not None:
        return python.version < _OLDEST_PYTHON
    return failure is not None and failure.status == NOT_FOUND


def _runtime(facts: Facts) -> tuple[str, ...]:
    container = facts.get(CONTAINER) if CONTAINER.name in facts.values else None
    return container.runtime.command if container and container.runtime and container.image else ()


def ports(fleet: Fleet, alias: str) -> list[tuple[str, int, int]]:
    """What the host shall listen on: a name, and from which port to which a free one is looked for.

    The master port of a job, one near each end of `port_range`, and one that the kernel chooses.
    """
    within = _unprivileged(fleet, alias)
    job = fleet.topology
    master = (job.master_port, job.port_window.last) if job else (within.first, within.last)
    return [
        ("master", *master),
        ("low", within.first, min(within.first + _SEARCH, within.last)),
        ("high", max(within.last - _SEARCH, within.first), within.last),
        ("ephemeral", *KERNELS_CHOICE),
    ]


def _unprivileged(fleet: Fleet, alias: str) -> PortRange:
    wanted = fleet.members[alias].port_range
    kernel = fleet.facts[alias].get(KERNEL)
    lowest = kernel.first_unprivileged_port if kernel else 1024
    return PortRange(min(max(wanted.first, lowest), wanted.last), wanted.last)


def ephemeral(fleet: Fleet, alias: str) -> PortRange:
    """The kernel's own range on that host; Linux' default where it was not read."""
    kernel = fleet.facts[alias].get(KERNEL)
    return kernel.ephemeral if kernel else PortRange(32768, 60999)
