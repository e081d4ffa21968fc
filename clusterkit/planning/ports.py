"""Which TCP ports a run owns on all its hosts: one contiguous window, free everywhere, in no other run.

    window      first … last
                │ channel port (supervisors, node 0)
                │ master port (Paddle's rendezvous, node 0)
                └ launcher ports: what `PORT_RANGE` gives the launcher, a share for each node of one machine

The kernel hands out ports of its ephemeral range to any outgoing connection, also between our look and the
launcher's bind; so the window lies outside that range where the inventory's `port_range` allows it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from clusterkit.errors import PortsTaken, TopologyError
from clusterkit.inventory.model import PortRange

# What a launcher draws: a store port, a port of its own, one a rank, and some that it may find taken.
OWN_PORTS = 2
SPARE_PORTS = 8


@dataclass(frozen=True)
class HostPorts:
    """What one node means for the ports.

    `machine` is equal for nodes on one machine; `used` maps ports that are listened on to their owner in
    words; `windows` are those of the runs alive there, by run id.
    """

    alias: str
    machine: str
    local_ranks: int
    port_range: PortRange
    ephemeral: PortRange
    reserved: tuple[PortRange, ...] = ()
    used: Mapping[int, str] = field(default_factory=dict)
    windows: Mapping[str, PortRange] = field(default_factory=dict)


@dataclass(frozen=True)
class PortPlan:
    """The run's window and what each port in it is for; `launcher_ports` in the order of the nodes."""

    window: PortRange
    channel_port: int
    master_port: int
    launcher_ports: tuple[PortRange, ...]
    notes: tuple[str, ...] = ()


def plan(hosts: Sequence[HostPorts], run_id: str) -> PortPlan:
    """Ports for a run on these nodes: the same for the same run id and facts, elsewhere for another run id.

    Raises PortsTaken if no window of the size that is needed is free on every host.
    """
    share = OWN_PORTS + SPARE_PORTS + max(host.local_ranks for host in hosts)
    slots = _slots(hosts)
    size = 2 + share * (max(slots) + 1)
    within = _common_range(hosts)
    blocked = _blocked(hosts)
    for region, note in _regions(hosts, within):
        first = _first_free(region, size, blocked, run_id)
        if first is not None:
            shares = (
                PortRange(start, start + share - 1) for start in (first + 2 + slot * share for slot in slots)
            )
            window = PortRange(first, first + size - 1)
            return PortPlan(window, first, first + 1, tuple(shares), (note.format(window),) if note else ())
    raise PortsTaken(*_nothing_free(hosts, within, size, blocked))


def _slots(hosts: Sequence[HostPorts]) -> list[int]:
    """For each node, how many nodes of the same machine come before it."""
    seen: Counter[str] = Counter()
    slots = []
    for host in hosts:
        slots.append(seen[host.machine])
        seen[host.machine] += 1
    return slots


def _common_range(hosts: Sequence[HostPorts]) -> PortRange:
    lowest = max(hosts, key=lambda host: host.port_range.first)
    highest = min(hosts, key=lambda host: host.port_range.last)
    if lowest.port_range.first > highest.port_range.last:
        raise TopologyError(
            f"no port lies in the port_range of every host: {lowest.alias} has {lowest.port_range}, "
            f"{highest.alias} has {highest.port_range}",
            "give all hosts one port_range, under [all:vars]",
        )
    return PortRange(lowest.port_range.first, highest.port_range.last)


def _blocked(hosts: Sequence[HostPorts]) -> dict[int, str]:
    """Every port that somebody holds on some host, and who."""
    blocked = {port: f"{owner} on {host.alias}" for host in hosts for port, owner in host.used.items()}
    for host in hosts:
        for run_id, window in host.windows.items():
            blocked.update(
                dict.fromkeys(range(window.first, window.last + 1), f"run {run_id} on {host.alias}")
            )
    return blocked


_INSIDE = (
    "the job's ports {} lie in the kernel's ephemeral range, so any outgoing connection may take one of them "
    "before the launcher does: widen port_range to ports below it"
)


def _regions(hosts: Sequence[HostPorts], within: PortRange) -> Iterator[tuple[PortRange, str]]:
    """Where to look, best first: below the ephemeral range, above it, reserved in it, anywhere in it."""
    below = min(host.ephemeral.first for host in hosts) - 1
    above = max(host.ephemeral.last for host in hosts) + 1
    yield PortRange(within.first, min(within.last, below)), ""
    yield PortRange(max(within.first, above), within.last), ""
    for part in hosts[0].reserved:
        if all(part in host.reserved for host in hosts):
            yield PortRange(max(part.first, within.first), min(part.last, within.last)), ""
    yield within, _INSIDE


def _first_free(region: PortRange, size: int, blocked: Mapping[int, str], run_id: str) -> int | None:
    """The first port of a free window, searched upwards from a place that the run id decides.

    Windows begin at multiples of their size where they can, so that two runs that start at the same moment
    meet only if they draw the same place.
    """
    starts = region.last - region.first + 1 - size + 1
    if starts < 1:
        return None
    drawn = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big")
    free = _free_from(sorted(port for port in blocked if port in region), size)
    cells = (starts + size - 1) // size
    aligned = (region.first + (drawn + step) % cells * size for step in range(cells))
    anywhere = (region.first + (drawn + step) % starts for step in range(starts))
    return next((first for order in (aligned, anywhere) for first in order if free(first)), None)


def _free_from(taken: Sequence[int], size: int) -> Callable[[int], bool]:
    def free(first: int) -> bool:
        at = bisect_left(taken, first)
        return at == len(taken) or taken[at] >= first + size

    return free


def _nothing_free(
    hosts: Sequence[HostPorts], within: PortRange, size: int, blocked: Mapping[int, str]
) -> tuple[str, str]:
    message = f"no {size} consecutive free TCP ports in port_range {within} on all {len(hosts)} hosts"
    taken = [f"{port} ({owner})" for port, owner in sorted(blocked.items()) if port in within]
    if taken:
        message += f"; in use: {', '.join(taken[:5])}" + (
            f" and {len(taken) - 5} more" if len(taken) > 5 else ""
        )
    return message, "widen port_range, or end what uses these ports"
