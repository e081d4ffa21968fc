"""What the attempts to connect say about each pair of hosts (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterkit.between.blame import Blame, Blocked, Needed
from clusterkit.between.peers import Peer
from clusterkit.preflight import Finding

NAME = "connect"
# What the kernel makes of "administratively prohibited" and "host unreachable".
_ICMP = "No route to host"
_PORTS = {"master": "master", "low": "port_range", "high": "port_range", "ephemeral": "ephemeral"}


@dataclass(frozen=True)
class Attempt:
    """One connection from one host to a port of another, and how it went (node/reach/connecting.py)."""

    source: Peer
    to: Peer
    kind: str
    port: int
    result: Mapping[str, Any]
    answered: bool = False
    """True if the request arrived there, and only the answer did not come back."""

    @property
    def open(self) -> bool:
        """True if our listener answered."""
        return bool(self.result["outcome"] == "open")


def judge(attempts: Sequence[Attempt], blame: Blame, needed: Needed, timeout: float) -> list[Finding]:
    """One finding for each ordered pair that fails on any port; one that is ok if none does."""
    by_pair: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        by_pair.setdefault((attempt.source.alias, attempt.to.alias), []).append(attempt)
    failed = [pair for pair in by_pair.values() if not all(attempt.open for attempt in pair)]
    if not failed and by_pair:
        count = max(len(pair) for pair in by_pair.values())
        return [Finding(NAME, "ok", detail=f"{len(by_pair)} ordered pairs on {count} ports each")]
    return [_pair(pair, blame, needed, timeout) for pair in failed]


def _pair(attempts: Sequence[Attempt], blame: Blame, needed: Needed, timeout: float) -> Finding:
    closed = [attempt for attempt in attempts if not attempt.open]
    first = closed[0]
    causes: dict[str, list[Attempt]] = {}
    refusing = any(each.result["outcome"] == "refused" or each.result["detail"] == _ICMP for each in closed)
    for attempt in closed:
        causes.setdefault(_cause(attempt, timeout, refusing), []).append(attempt)
    parts = [f"{_ports(of_cause)}: {cause}" for cause, of_cause in causes.items()]
    if len(closed) < len(attempts):
        parts.append(f"{_ports([attempt for attempt in attempts if attempt.open])}: open")
    who = _blamed(closed, blame)
    parts += [who] if who else []
    hint = _hint(first, needed, who)
    return Finding(NAME, "failed", first.source.alias, first.to.alias, "; ".join(parts), hint)


def _cause(attempt: Attempt, timeout: float, refusing: bool) -> str:
    """DROP or REJECT, in words that say how we know."""
    outcome, detail = attempt.result["outcome"], attempt.result["detail"]
    if outcome == "silent":
        if attempt.answered:
            return f"DROP on the way back: the request arrives, no answer within {timeout:g} s"
        # A kernel refuses only so often in a second.
        or_not = ", or one refusal too many" if refusing else ""
        return f"DROP{or_not}, no answer within {timeout:g} s"
    if outcome == "refused":
        return "REJECT, refused although clusterkit listens there"
    if outcome == "stalled":
        return f"it connects, then nothing comes back{f' ({detail})' if detail else ''}"
    if outcome == "stranger":
        who = f"{detail}, another host of the inventory," if detail else "something else"
        return f"{who} answers at {attempt.to.ip}: is the address used twice?"
    if outcome == "absent":
        return f"no machine answers for {attempt.to.ip} on {attempt.source.interface}"
    if detail == _ICMP:
        return "REJECT, refused with an ICMP answer"
    return f"{detail} on {attempt.source.alias}"


def _ports(attempts: Iterable[Attempt]) -> str:
    return "port " + ", ".join(f"{each.port} ({_PORTS[each.kind]})" for each in attempts)


def _blamed(closed: Sequence[Attempt], blame: Blame) -> str:
    """The hosts and rules that block it, or that no host does; "" where nobody knows."""
    firewalled = [each for each in closed if each.result["outcome"] in ("silent", "refused", "error")]
    found = [
        blame(Blocked(each.source.alias, each.source.ip, each.to.alias, each.to.ip, each.port))
        for each in firewalled
    ]
    rules = list(dict.fromkeys(each for each in found if each))
    if rules:
        return "blocked by " + " and ".join(rules)
    # Rules are followed for what opens a connection; a dropped answer may well be a host's own doing.
    if found and None not in found and not any(each.answered for each in firewalled):
        return "no rule of either host blocks it, so something between them does (security group, switch ACL)"
    return ""


def _hint(attempt: Attempt, needed: Needed, who: str) -> str:
    source, to = attempt.source, attempt.to
    if attempt.result["outcome"] == "stranger":
        return f"give {to.alias} an address of its own, or correct node_ip in the inventory"
    if who.startswith("blocked by"):
        check = "firewall" if who.startswith(f"blocked by {to.alias}:") else "firewall out"
        host = to.alias if check == "firewall" else source.alias
        return f"what to do about that rule stands with the check `{check}` of {host}"
    ask = f"ask who runs the network to let {needed} through from {source.ip} to {to.ip}"
    if who:
        return ask
    return f"look at the firewalls of {to.alias} (in) and {source.alias} (out); if neither blocks, {ask}"
