"""How long a packet takes there and back (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from clusterkit.between.pairs import Pair
from clusterkit.preflight import Finding

NAME = "round trip"
# Within one cluster; beyond it the hosts are in different buildings, or a link is in trouble.
SLOW_S = 0.002
# A whole cluster on a slow network is not one slow pair: only what stands out is named.
_STANDS_OUT = 5.0


def judge(round_trips: Mapping[Pair, float]) -> list[Finding]:
    """One warning for each pair, or for a host that is far from all, that stands out; else one that is ok."""
    if not round_trips:
        return []
    typical = median(round_trips.values())
    limit = max(SLOW_S, _STANDS_OUT * typical)
    far = {pair: seconds for pair, seconds in round_trips.items() if seconds > limit}
    if not far:
        (source, to), slowest = max(round_trips.items(), key=lambda entry: entry[1])
        if typical > SLOW_S:
            text = f"{_ms(typical)} is typical, which is long within one cluster"
            return [Finding(NAME, "warning", detail=text, hint="are all nodes in one place?")]
        text = f"{_ms(typical)} typical, {_ms(slowest)} at most ({source} to {to})"
        return [Finding(NAME, "ok", detail=text)]
    return [
        Finding(NAME, "warning", source, to, f"{_ms(seconds)}, {_ms(typical)} is typical", "check that link")
        for (source, to), seconds in far.items()
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2g} ms"
