"""Sets of packets: from which nodes, to which ports. Both are the bits of a number."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from clusterkit.inventory.model import PortRange
from clusterkit.probes.firewall.rules import Ranges

ALL_PORTS = (1 << 65536) - 1


@dataclass(frozen=True)
class Box:
    """Every one of `ports` with every one of `nodes`: bit N is port N, or the Nth node's address."""

    nodes: int
    ports: int

    def __bool__(self) -> bool:
        return bool(self.nodes and self.ports)

    def __and__(self, other: Box) -> Box:
        return Box(self.nodes & other.nodes, self.ports & other.ports)

    def minus(self, other: Box) -> Iterator[Box]:
        """What is left without the other, as boxes that do not overlap."""
        shared = self & other
        if not shared:
            yield self
            return
        for rest in (
            Box(self.nodes & ~shared.nodes, self.ports),
            Box(shared.nodes, self.ports & ~shared.ports),
        ):
            if rest:
                yield rest


Region = tuple[Box, ...]


def within(region: Region, box: Box) -> Region:
    """The part of the region that lies in the box."""
    return tuple(part for each in region if (part := each & box))


def without(region: Region, box: Box) -> Region:
    """The part of the region that does not."""
    return tuple(rest for each in region for rest in each.minus(box))


def port_bits(ranges: Iterable[tuple[int, int]]) -> int:
    """The ports of the ranges."""
    bits = 0
    for first, last in ranges:
        bits |= (1 << (min(last, 65535) + 1)) - (1 << first) if first <= last else 0
    return bits


def address_bits(ranges: Ranges, addresses: Sequence[int]) -> int:
    """Which of the addresses, which are in ascending order, lie in the ranges."""
    bits = 0
    for first, last in ranges:
        bits |= (1 << bisect_right(addresses, last)) - (1 << bisect_left(addresses, first))
    return bits


def port_ranges(bits: int) -> tuple[PortRange, ...]:
    """The ports as ranges, in ascending order."""
    found = []
    while bits:
        first = (bits & -bits).bit_length() - 1
        length = (~(bits >> first) & ((bits >> first) + 1)).bit_length() - 1
        found.append(PortRange(first, first + length - 1))
        bits &= ~((1 << (first + length)) - (1 << first))
    return tuple(found)


def by_ports(boxes: Iterable[Box]) -> dict[int, int]:
    """Boxes that may overlap → for each set of ports the nodes that have just these."""
    groups: dict[int, int] = {}
    for box in boxes:
        split: dict[int, int] = {}
        rest = box.nodes
        for ports, nodes in groups.items():
            shared = nodes & box.nodes
            rest &= ~nodes
            for key, bits in ((ports, nodes & ~shared), (ports | box.ports, shared)):
                if bits:
                    split[key] = split.get(key, 0) | bits
        if rest:
            split[box.ports] = split.get(box.ports, 0) | rest
        groups = split
    return groups


def members(bits: int, addresses: Sequence[int]) -> Iterator[int]:
    """The addresses whose bits are set."""
    return (address for number, address in enumerate(addresses) if bits >> number & 1)
