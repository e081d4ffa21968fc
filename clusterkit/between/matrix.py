"""Bandwidth from each host to each other: who is slow, a host or one pair (pure)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from clusterkit.between.figures import figures
from clusterkit.between.pairs import Pair
from clusterkit.preflight import Finding

NAME = "bandwidth"
# Below this share of what is usual in the fleet something is wrong; neighbours on a link vary less.
SLOW = 0.5
# A host is slow if so much of its row or column is.
_MOST = 0.75
# What a single stream should reach of a link that the driver reports (ml-engineering's rule); faster links
# need several streams, so nothing is said about them.
_OF_LINK = 0.8
_ONE_STREAM_MBIT = 10_000


@dataclass(frozen=True)
class Matrix:
    """`rates` in bytes per second, by (from, to); a pair that could not be measured is in `failures`."""

    hosts: tuple[str, ...]
    rates: Mapping[Pair, float]
    failures: Mapping[Pair, str] = field(default_factory=dict)

    def row(self, host: str) -> list[float]:
        """What it sends to each other host."""
        found = (self.rates.get((host, other)) for other in self.hosts)
        return [rate for rate in found if rate is not None]

    def column(self, host: str) -> list[float]:
        """What it gets from each other host."""
        found = (self.rates.get((other, host)) for other in self.hosts)
        return [rate for rate in found if rate is not None]

    @cached_property
    def typical(self) -> float:
        """The median. Of up to four hosts, the upper quartile: one of three may be slow both ways."""
        ordered = sorted(self.rates.values())
        share = 0.75 if len(self.hosts) < 5 else 0.5
        return ordered[math.ceil(share * len(ordered)) - 1] if ordered else 0.0

    @cached_property
    def suspects(self) -> list[Pair]:
        """The pairs that are slow."""
        return [pair for pair, rate in self.rates.items() if rate < SLOW * self.typical]

    def as_rows(self) -> list[list[float | None]]:
        """In the order of `hosts`, for drawing; None on the diagonal and where nothing is known."""
        return [[self.rates.get((one, other)) for other in self.hosts] for one in self.hosts]


@dataclass(frozen=True)
class _Slow:
    """One host and one direction."""

    host: str
    sends: bool
    rate: float


def judge(matrix: Matrix, speeds: Mapping[str, int | None]) -> list[Finding]:
    """Slow hosts, slow pairs of hosts that are not slow, pairs without a result; else one that is ok."""
    found = [
        Finding(NAME, "failed", source, to, f"no measurement: {why}", "see the connections of this pair")
        for (source, to), why in matrix.failures.items()
    ]
    slow = [one for host in matrix.hosts for one in _slow(matrix, host)]
    found += [_host(one, matrix.typical) for one in slow]
    outward = {one.host for one in slow if one.sends}
    inward = {one.host for one in slow if not one.sends}
    for source, to in matrix.suspects:
        if source not in outward and to not in inward:
            text = f"{gbit(matrix.rates[source, to])}, {gbit(matrix.typical)} is typical"
            hint = "both hosts are fast otherwise: look at the cable or the route between these two"
            found.append(Finding(NAME, "warning", source, to, text, hint))
    return found or _all_well(matrix, speeds)


def _slow(matrix: Matrix, host: str) -> list[_Slow]:
    found = []
    for sends, rates in ((True, matrix.row(host)), (False, matrix.column(host))):
        slow = [rate for rate in rates if rate < SLOW * matrix.typical]
        if len(slow) >= max(2.0, _MOST * len(rates)):
            found.append(_Slow(host, sends, max(slow)))
    return found


def _host(slow: _Slow, typical: float) -> Finding:
    text = f"{'sends' if slow.sends else 'gets'} {gbit(slow.rate)} at most, {gbit(typical)} is typical"
    hint = f"look at the link of {slow.host}: ethtool (speed, duplex), ip -s link (errors), cable, switch"
    source, to = (slow.host, "") if slow.sends else ("", slow.host)
    return Finding(NAME, "warning", source, to, text, hint)


def _all_well(matrix: Matrix, speeds: Mapping[str, int | None]) -> list[Finding]:
    if not matrix.rates:
        return []
    lowest = min(matrix.rates, key=lambda pair: matrix.rates[pair])
    text = (
        f"{gbit(matrix.typical)} typical, {gbit(matrix.rates[lowest])} at least ({lowest[0]} to {lowest[1]})"
    )
    known = [speeds.get(host) for host in matrix.hosts]
    link = min((speed for speed in known if speed), default=None) if None not in known else None
    if link and link <= _ONE_STREAM_MBIT and matrix.typical * 8 < _OF_LINK * link * 1e6:
        text += f", on links of {link / 1000:g} Gbit/s"
        return [Finding(NAME, "warning", detail=text, hint="is the network shared, or busy now?")]
    return [Finding(NAME, "ok", detail=text)]


def gbit(rate: float) -> str:
    """Bytes per second, for a person."""
    bits = rate * 8
    return f"{figures(bits / 1e9, 3)} Gbit/s" if bits >= 1e9 else f"{figures(bits / 1e6, 3)} Mbit/s"


def better(first: Matrix, again: Mapping[Pair, float]) -> Matrix:
    """Each pair's better result: a host that was busy for a moment is not slow."""
    rates = {pair: max(rate, again.get(pair, 0.0)) for pair, rate in first.rates.items()}
    return Matrix(first.hosts, rates, first.failures)


def worth_repeating(matrix: Matrix) -> Sequence[Pair]:
    """The slow pairs, at most three from and to each host."""
    chosen: list[Pair] = []
    sending: Counter[str] = Counter()
    getting: Counter[str] = Counter()
    for source, to in matrix.suspects:
        if sending[source] < 3 and getting[to] < 3:
            sending[source] += 1
            getting[to] += 1
            chosen.append((source, to))
    return chosen
