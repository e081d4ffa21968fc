"""Which host's rule blocks a connection: its packets followed through the chains of both hosts."""

from __future__ import annotations

from ipaddress import IPv4Address

from clusterkit.between.blame import Blame, Blocked
from clusterkit.probes.firewall import FIREWALL, FirewallFacts
from clusterkit.steps import Fleet
from clusterkit.steps.firewall.nodes import Nodes, find
from clusterkit.steps.firewall.regions import port_bits
from clusterkit.steps.firewall.traverse import Dropped, Flow, dropped


def blame(fleet: Fleet) -> Blame:
    """A function that names host and rule; None where none does, and not all rules are known."""

    def blamed(blocked: Blocked) -> str | None:
        nodes = fleet.once(find)
        unknown = False
        for host, outgoing in ((blocked.to, False), (blocked.source, True)):
            rules, flow = _rules(fleet, host), _flow(blocked, nodes, outgoing=outgoing)
            if rules is None or flow is None:
                unknown = True
                continue
            found = dropped(rules, flow)
            if found:
                return f"{host}: {_first(found)}"
        return None if unknown else ""

    return blamed


def _rules(fleet: Fleet, host: str) -> FirewallFacts | None:
    facts = fleet.facts.get(host)
    return facts.get(FIREWALL) if facts else None


def _flow(blocked: Blocked, nodes: Nodes, *, outgoing: bool) -> Flow | None:
    host = blocked.source if outgoing else blocked.to
    if host not in nodes.ends:
        return None
    here, there = (blocked.source_ip, blocked.to_ip) if outgoing else (blocked.to_ip, blocked.source_ip)
    return Flow(
        others=(int(IPv4Address(there)),),
        ports=port_bits([(blocked.port, blocked.port)]),
        own=(int(IPv4Address(here)),),
        interfaces=nodes.ends[host].interfaces,
        outgoing=outgoing,
    )


def _first(found: tuple[Dropped, ...]) -> str:
    """What surely drops is named before what may."""
    return str(sorted(found, key=lambda each: not each.certain)[0])
