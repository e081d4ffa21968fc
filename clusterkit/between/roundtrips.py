"""How long a packet takes there and back (pure)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from clusterkit.between.figures import figures
from clusterkit.between.pairs import Pair
from clusterkit.preflight import Finding

NAME = "round trip"
# Within one cluster; beyond it the hosts are in different buildings, or a link is in trouble.
SLOW_S = 0.002
# A whole cluster on a slow network is not one slow pair: only what stands out is named.
_STANDS_OUT = 5.0


def judge(round_trips: Mapping[Pair, float]) -> list[Finding]:
    """A warning for each host that is far from all others, and each other pair that stands out; else ok."""
    if not round_trips:
        return []
    typical = _typical(round_trips)
    limit = max(SLOW_S, _STANDS_OUT * typical)
    far = {pair: seconds for pair, seconds in round_trips.items() if seconds > limit}
    if not far:
        (source, to), slowest = max(round_trips.items(), key=lambda entry: entry[1])
        if typical > SLOW_S:
            text = f"{_ms(typical)} is typical, which is long within one cluster"
            return [Finding(NAME, "warning", detail=text, hint="are all nodes in one place?")]
        text = f"{_ms(typical)} typical, {_ms(slowest)} at most ({source} to {to})"
        return [Finding(NAME, "ok", detail=text)]
    remote = _far_from_all(round_trips, far)
    return [_host(host, far, typical) for host in remote] + [
        Finding(NAME, "warning", source, to, f"{_ms(seconds)}, {_ms(typical)} is typical", "check that link")
        for (source, to), seconds in far.items()
        if source not in remote and to not in remote
    ]


def _typical(round_trips: Mapping[Pair, float]) -> float:
    """The median. Of up to four hosts, the lower quartile: one of three may be far from both others."""
    ordered = sorted(round_trips.values())
    share = 0.25 if len(_hosts(round_trips)) < 5 else 0.5
    return ordered[math.ceil(share * len(ordered)) - 1]


def _far_from_all(round_trips: Mapping[Pair, float], far: Collection[Pair]) -> list[str]:
    """The hosts, of three and more, of which every pair is far."""
    pairs = {host: [pair for pair in round_trips if host in pair] for host in _hosts(round_trips)}
    return [host for host, own in pairs.items() if len(own) > 2 and all(pair in far for pair in own)]


def _host(host: str, far: Mapping[Pair, float], typical: float) -> Finding:
    nearest = min(seconds for pair, seconds in far.items() if host in pair)
    text = f"{_ms(nearest)} and more to and from all others, {_ms(typical)} is typical"
    hint = f"look at the link of {host}: cable, switch, route; is it in the same place as the others?"
    return Finding(NAME, "warning", host, "", text, hint)


def _hosts(round_trips: Mapping[Pair, float]) -> list[str]:
    return list(dict.fromkeys(host for pair in round_trips for host in pair))


def _ms(seconds: float) -> str:
    return f"{figures(seconds * 1000, 2)} ms"
