"""The nodes reach each other on the ports of a job, and nobody else does by a rule of ours.

nodes        who: all addresses of all nodes, and the ports that a job listens on
regions      sets of packets as numbers
traverse     what the kernel's rules do with them
picture      which program decides, what is closed, stale and kept
ufw, firewalld, nftables, iptables
             shell lines for each in its own way, with its own mark
"""

from __future__ import annotations

from clusterkit.probes import KERNEL, NETWORK
from clusterkit.probes.firewall import FIREWALL
from clusterkit.steps.engine import LAUNCH, Change, Fleet, Severity, State, Status, Step
from clusterkit.steps.firewall.nodes import find
from clusterkit.steps.firewall.picture import decided_by, draw, outgoing, undo
from clusterkit.steps.firewall.regions import port_ranges
from clusterkit.steps.firewall.traverse import Dropped, dropped


def _not_asked(host: str, fleet: Fleet) -> str:
    """Why there is nothing to open on a host."""
    nodes = fleet.once(find)
    if host not in nodes.ends:
        return f"which address the other nodes use is not known: {nodes.problem or 'no network was read'}"
    return "" if nodes.ends[host].addresses else "the nodes meet on loopback, which no firewall closes"


class Firewall(Step):
    """`port_range` and the kernel's ephemeral range are open for TCP from the nodes' addresses.

    The ephemeral range too: NCCL and gloo listen on ports that the kernel chooses.
    """

    name = "firewall"
    tags = frozenset({LAUNCH})
    probes = (FIREWALL, NETWORK, KERNEL)
    tells_why = True

    def skip(self, host: str, fleet: Fleet) -> str:
        """Where nothing can drop a packet there is nothing to open."""
        reason = _not_asked(host, fleet)
        if reason:
            return reason
        if fleet.starting and fleet.facts[host].get(FIREWALL) is None:
            return "its rules could not be read; the nodes try the connection when they start"
        active = decided_by(fleet.facts[host][FIREWALL])
        return "" if active else "no firewall is active, so nothing has to be opened"

    def desired(self, host: str, fleet: Fleet) -> State:
        """Nothing is closed to a node, nothing of ours open to anybody else, and a restart keeps it so."""
        picture = draw(host, fleet)
        if fleet.starting:
            return {"decided_by": picture.decided_by, "closed": ()}
        return {
            "decided_by": picture.decided_by,
            "closed": (),
            "stale": (),
            "kept_in": picture.should_be_kept,
        }

    def actual(self, host: str, fleet: Fleet) -> State:
        """From the rules that the kernel has, and the file that will be loaded again."""
        picture = draw(host, fleet)
        if fleet.starting:
            # A rule that only may drop is left to the connection itself.
            certain = any(each.certain for each in picture.dropped)
            return {"decided_by": picture.decided_by, "closed": picture.closed if certain else ()}
        return {
            "decided_by": picture.decided_by,
            "closed": picture.closed,
            "stale": picture.stale,
            "kept_in": picture.is_kept,
        }

    def fix(self, change: Change) -> list[str]:
        return draw(change.host, change.fleet).fix()

    def undo(self, host: str, fleet: Fleet) -> list[str]:
        return undo(fleet.facts[host][FIREWALL])

    def severity(self, change: Change) -> Severity:
        """Somebody else's rule, in a place where we write none."""
        return "manual"

    def explain(self, change: Change) -> str:
        picture = draw(change.host, change.fleet)
        parts = []
        if picture.closed:
            parts.append(f"{_ports(picture.dropped)} from nodes {_is_dropped(picture.dropped)}")
        if picture.stale and not change.fleet.starting:
            parts.append(f"still open, though no node needs it: {', '.join(picture.stale[:4])}")
        missing = [path for path in picture.should_be_kept if path not in picture.is_kept]
        if missing and not picture.closed:
            parts.append(f"the next restart would not open this as it should be: {', '.join(missing)}")
        return "; ".join(parts)

    def hint(self, change: Change) -> str:
        picture = draw(change.host, change.fleet)
        if picture.foreign:
            return f"allow it by hand, before {_culprits(picture.foreign)}"
        if not picture.fix():
            return (
                "this firewalld has no policies (0.9 has): allow it by hand, from the nodes' addresses only"
            )
        return ""


class FirewallOut(Step):
    """Nothing drops what a node sends to another one."""

    name = "firewall out"
    probes = (FIREWALL, NETWORK, KERNEL)
    unknown: Status = "skipped"  # one word about rules that cannot be read is enough

    def skip(self, host: str, fleet: Fleet) -> str:
        """Without an address there is no way to follow."""
        return _not_asked(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """No rule."""
        return {"dropped_by": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The rules that drop it."""
        found = _out(host, fleet)
        return {"dropped_by": tuple(dict.fromkeys(map(str, found)))}

    def severity(self, change: Change) -> Severity:
        """A rule with a test whose outcome is not known may let everything through."""
        certain = any(each.certain for each in _out(change.host, change.fleet))
        return "manual" if certain else "warning"

    def explain(self, change: Change) -> str:
        found = _out(change.host, change.fleet)
        return f"{_ports(found)} to other nodes {_is_dropped(found, ' on the way out')}"

    def hint(self, change: Change) -> str:
        return "rules on the way out are somebody's intent: allow it there by hand, to the nodes' addresses"


class FirewallAtBoot(Step):
    """What was opened stays open after the next boot."""

    name = "firewall at boot"
    probes = (FIREWALL, NETWORK, KERNEL)
    unknown: Status = "skipped"  # one word about rules that cannot be read is enough

    def skip(self, host: str, fleet: Fleet) -> str:
        """Where nothing of ours is open."""
        reason = _not_asked(host, fleet)
        if reason:
            return reason
        opened = any(part.marked for part in draw(host, fleet).parts)
        return "" if opened else "no port was opened by preflight"

    def desired(self, host: str, fleet: Fleet) -> State:
        """No program."""
        return {"live_only": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The programs that load nothing of ours at boot."""
        return {"live_only": draw(host, fleet).live_only}

    def severity(self, change: Change) -> Severity:
        """The job of today runs."""
        return "warning"

    def explain(self, change: Change) -> str:
        names = ", ".join(draw(change.host, change.fleet).live_only)
        idle = change.facts[FIREWALL].idle_services
        if idle:
            return f"the ports are open until the next boot only: {' and '.join(idle)} is not enabled"
        return f"the ports are open until the next boot only: {names} loads no file that could keep them"

    def hint(self, change: Change) -> str:
        idle = change.facts[FIREWALL].idle_services
        if idle:
            return f"as root on {change.host}: systemctl enable {' '.join(idle)}"
        if any("iptables" in name for name in draw(change.host, change.fleet).live_only):
            return (
                "run `clusterkit preflight` after each boot, or let a service load the rules: "
                "iptables-persistent (Debian), iptables-services (Red Hat)"
            )
        return (
            "run `clusterkit preflight` after each boot, or let nft's service load these tables from its file"
        )


def _out(host: str, fleet: Fleet) -> tuple[Dropped, ...]:
    return dropped(fleet.facts[host][FIREWALL], outgoing(fleet, host))


def _ports(found: tuple[Dropped, ...]) -> str:
    ports = 0
    for each in found:
        ports |= each.box.ports
    shown = [str(each) for each in port_ranges(ports)]
    return f"TCP {', '.join(shown[:4])}" + (" and more" if len(shown) > 4 else "")


def _is_dropped(found: tuple[Dropped, ...], where: str = "") -> str:
    """`is dropped by RULE`, or how far that is sure."""
    sure = "is" if any(each.certain for each in found) else "may be"
    return f"{sure} dropped{where} by {_culprits(found)}"


def _culprits(found: tuple[Dropped, ...]) -> str:
    shown = list(dict.fromkeys(f"`{each}`" for each in found))
    return ", ".join(shown[:2]) + (f" and {len(shown) - 2} more" if len(shown) > 2 else "")
