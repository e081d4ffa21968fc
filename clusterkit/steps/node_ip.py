"""The address that the other nodes will use is on this host, and a program may bind it."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address

from clusterkit.errors import NodeError
from clusterkit.planning.addresses import declared, listed
from clusterkit.probes import NETWORK, PYTHON
from clusterkit.steps.engine import LAUNCH, Change, Fleet, Recorded, State, Step


class NodeAddress(Step):
    """The node address is the host's own: with another one Paddle's launcher waits for ever, silently."""

    name = "node address"
    tags = frozenset({LAUNCH})
    probes = (NETWORK, PYTHON)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Without a planned run there is only what the inventory says."""
        return "" if _wanted(host, fleet) else "no run is planned"

    def desired(self, host: str, fleet: Fleet) -> State:
        """The planned address, without an error when it is bound, on an interface that is up."""
        return {
            "node_ip": _wanted(host, fleet),
            "bind_error": "",
            "up": True,
            "interface": Recorded(),
            "speed_mbit": Recorded(),
        }

    def actual(self, host: str, fleet: Fleet) -> State:
        """Whether the host has it, and what binding it said (nothing where no program could try)."""
        ip, facts = _wanted(host, fleet), fleet.facts[host]
        python, owner = facts.get(PYTHON), facts[NETWORK].owner(ip) if _is_address(ip) else None
        interface = facts[NETWORK].interfaces.get(owner.interface) if owner else None
        return {
            "node_ip": ip if owner else None,
            "bind_error": python.binds.get(ip, "") if python else "",
            "up": interface.up if interface else True,
            "interface": owner.interface if owner else None,
            "speed_mbit": interface.speed if interface else None,
        }

    def explain(self, change: Change) -> str:
        ip = change.desired["node_ip"]
        if "node_ip" in change.keys:
            return (
                f"node address {ip} is not on this host, which has {listed(change.facts[NETWORK].addresses)}"
            )
        if "up" in change.keys:
            return f"node address {ip} is on {change.actual['interface']}, which is down"
        return f"node address {ip} cannot be bound: {change.actual['bind_error']}"

    def hint(self, change: Change) -> str:
        if change.keys == ("up",):
            return (
                f"as root: ip link set {change.actual['interface']} up; if it stays down, look at its cable"
            )
        return f"correct node_ip, network or interface of {change.host} in the inventory"


def _wanted(host: str, fleet: Fleet) -> str:
    """The planned address; for a host that did not fit into the plan what the inventory says; "" without."""
    node = fleet.node(host)
    if node:
        return node.node_ip
    settings = fleet.members[host]
    try:
        found = declared(settings, fleet.facts[host][NETWORK])
    except NodeError:
        named = f"network={settings.network}" if settings.network else f"interface={settings.interface}"
        return settings.node_ip or named
    return found.ip if found else ""


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
