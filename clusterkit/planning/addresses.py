"""Which IPv4 address of a host the other nodes use: what the inventory says, else the one network they share.

Never what `ansible_host` or the host's own name resolves to: that is the way in, not the training network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError

from clusterkit.errors import HostError, NodeError, TopologyError
from clusterkit.facts import Facts
from clusterkit.inventory.model import Settings
from clusterkit.probes import NETWORK
from clusterkit.probes.network import Address, Interface, NetworkFacts


@dataclass(frozen=True)
class Chosen:
    """An address for each host, in the order asked, and what was decided without being asked."""

    addresses: tuple[Address, ...]
    notes: tuple[str, ...] = ()


def choose(members: Sequence[Settings], facts: Mapping[str, Facts]) -> Chosen:
    """The node address of every host: on that host, IPv4, unique, and no loopback unless all are local.

    Raises TopologyError where the inventory's word does not fit the host, or where several networks would do.
    """
    networks = {settings.alias: facts[settings.alias][NETWORK] for settings in members}
    chosen = {s.alias: _declared(s, networks[s.alias]) for s in members if _has_word(s)}
    notes: tuple[str, ...] = ()
    if len(chosen) < len(members):
        undeclared = [settings for settings in members if settings.alias not in chosen]
        found, notes = _by_default(members, undeclared, networks, chosen)
        chosen.update(found)
    _refuse_loopback(members, chosen)
    _refuse_duplicates(members, chosen)
    return Chosen(tuple(chosen[settings.alias] for settings in members), notes)


def fitting(members: Sequence[Settings], facts: Mapping[str, Facts]) -> dict[str, Address]:
    """As `choose`, without the hosts that have no address that fits; {} if none has.

    Raises TopologyError where several networks would do, or several hosts have one address.
    """
    left = list(members)
    while left:
        try:
            found = choose(left, facts).addresses
        except (NodeError, HostError) as error:
            left = [each for each in left if each.alias != error.host]
        else:
            return {each.alias: address for each, address in zip(left, found, strict=True)}
    return {}


def declared(settings: Settings, network: NetworkFacts) -> Address | None:
    """The address that the inventory's own word leads to, None without such a word. Raises NodeError."""
    return _declared(settings, network) if _has_word(settings) else None


# --- what the inventory says -----------------------------------------------------------------------


def _has_word(settings: Settings) -> bool:
    return bool(settings.node_ip or settings.network or settings.interface)


def _declared(settings: Settings, network: NetworkFacts) -> Address:
    if settings.node_ip:
        return _by_ip(settings.alias, settings.node_ip, network)
    if settings.network:
        return _by_network(settings.alias, settings.network, network)
    return _by_interface(settings.alias, settings.interface or "", network)


def _by_ip(alias: str, ip: str, network: NetworkFacts) -> Address:
    try:
        IPv4Address(ip)
    except AddressValueError:
        raise NodeError(
            alias,
            f"{alias}: node_ip={ip} is not an IPv4 address",
            "Paddle's launcher takes IPv4 addresses only: write the address, not a name",
        ) from None
    owner = network.owner(ip)
    if owner is None:
        raise NodeError(
            alias,
            f"{alias}: node_ip={ip} is not an address of this host, which has {listed(network.addresses)}",
            f"correct node_ip of {alias} in the inventory",
        )
    return Address(ip, owner.prefix, owner.interface)


def _by_network(alias: str, cidr: str, network: NetworkFacts) -> Address:
    try:
        wanted = IPv4Network(cidr, strict=False)
    except (AddressValueError, NetmaskValueError, ValueError):
        raise NodeError(
            alias, f"{alias}: network={cidr} is not an IPv4 network", "write it as 10.0.0.0/24"
        ) from None
    fitting = [address for address in network.addresses if IPv4Address(address.ip) in wanted]
    return _the_one(alias, f"network={cidr}", fitting, network)


def _by_interface(alias: str, name: str, network: NetworkFacts) -> Address:
    fitting = [address for address in network.addresses if address.interface == name]
    return _the_one(alias, f"interface={name}", fitting, network)


def _the_one(alias: str, word: str, fitting: Sequence[Address], network: NetworkFacts) -> Address:
    """The only address, or the only one that is not `secondary`."""
    primary = [address for address in fitting if not address.secondary] or list(fitting)
    if len(primary) == 1:
        return primary[0]
    if not primary:
        raise NodeError(
            alias,
            f"{alias}: {word} fits no address of this host, which has {listed(network.addresses)}",
            f"correct it in the inventory, or write node_ip for {alias}",
        )
    raise NodeError(
        alias,
        f"{alias}: {word} fits several addresses: {listed(primary)}",
        f"write node_ip for {alias} in the inventory",
    )


# --- what is taken without a word ------------------------------------------------------------------

_Found = tuple[dict[str, Address], tuple[str, ...]]


def _by_default(
    members: Sequence[Settings],
    undeclared: Sequence[Settings],
    networks: Mapping[str, NetworkFacts],
    declared: Mapping[str, Address],
) -> _Found:
    if all(settings.connection == "local" for settings in members):
        return _on_loopback(undeclared, declared)
    candidates = {s.alias: usable(networks[s.alias]) for s in undeclared}
    for alias, address in declared.items():
        candidates[alias] = [address]
    shared = _shared(candidates)
    if len(members) == 1:
        return _alone(undeclared[0].alias, candidates[undeclared[0].alias], networks)
    if not shared:
        return _only_ones(undeclared, candidates, networks)
    subnet, note = _best(shared, networks)
    found = {settings.alias: shared[subnet][settings.alias] for settings in undeclared}
    return found, ((note,) if note else ())


def _on_loopback(undeclared: Sequence[Settings], declared: Mapping[str, Address]) -> _Found:
    """All nodes are this machine: 127.0.0.1 for one, 127.0.0.2 and up (Linux) for several."""
    if len(undeclared) == 1 and not declared:
        return {undeclared[0].alias: Address("127.0.0.1", 8, "lo")}, ()
    taken = {address.ip for address in declared.values()}
    free = (str(IPv4Address("127.0.0.1") + count) for count in range(1, 65_000))
    ips = (ip for ip in free if ip not in taken)
    return {settings.alias: Address(next(ips), 8, "lo") for settings in undeclared}, ()


def usable(network: NetworkFacts) -> list[Address]:
    """Addresses that another machine could reach: interface up, no loopback, no link-local."""
    return [
        address
        for address in network.addresses
        if not address.loopback
        and not address.secondary
        and not IPv4Address(address.ip).is_link_local
        and _interface(network, address).up
    ]


def _interface(network: NetworkFacts, address: Address) -> Interface:
    return network.interfaces.get(address.interface) or Interface(address.interface, True, True, None, 1500)


def _shared(candidates: Mapping[str, Sequence[Address]]) -> dict[IPv4Network, dict[str, Address]]:
    """The subnets in which every host has an address of its own (docker0 has the same one everywhere)."""
    by_subnet: dict[IPv4Network, dict[str, Address]] = {}
    for alias, addresses in candidates.items():
        for address in addresses:
            by_subnet.setdefault(address.network, {}).setdefault(alias, address)
    return {
        subnet: hosts
        for subnet, hosts in by_subnet.items()
        if len(hosts) == len(candidates) == len({address.ip for address in hosts.values()})
    }


@dataclass(frozen=True)
class _Subnet:
    """A subnet as the slowest of its interfaces makes it."""

    network: IPv4Network
    interfaces: tuple[str, ...]
    virtual: bool
    speed: int | None

    def __str__(self) -> str:
        speed = f"{self.speed / 1000:g} Gbit/s" if self.speed else "speed not known"
        return f"{self.network} ({'/'.join(self.interfaces[:3])}, {speed})"


def _described(
    subnet: IPv4Network, hosts: Mapping[str, Address], networks: Mapping[str, NetworkFacts]
) -> _Subnet:
    found = [_interface(networks[alias], address) for alias, address in hosts.items()]
    speeds = [interface.speed for interface in found]
    slowest = min((speed for speed in speeds if speed is not None), default=None)
    return _Subnet(
        subnet,
        tuple(dict.fromkeys(interface.name for interface in found)),
        any(interface.virtual for interface in found),
        None if None in speeds else slowest,
    )


def _best(
    shared: Mapping[IPv4Network, Mapping[str, Address]], networks: Mapping[str, NetworkFacts]
) -> tuple[IPv4Network, str]:
    """The only subnet, else the fastest that is not virtual, with the sentence that says so."""
    all_of_them = [_described(subnet, hosts, networks) for subnet, hosts in shared.items()]
    if len(all_of_them) == 1:
        return all_of_them[0].network, ""
    real = [subnet for subnet in all_of_them if not subnet.virtual] or all_of_them
    fastest = max(real, key=lambda subnet: subnet.speed or 0)
    rivals = [s for s in real if s is not fastest and (s.speed is None or s.speed == fastest.speed)]
    if len(real) > 1 and (fastest.speed is None or rivals):
        raise TopologyError(
            f"the hosts share several networks and none is clearly the fastest: {', '.join(map(str, real))}",
            f"choose one under [all:vars], such as network={real[0].network}",
        )
    others = ", ".join(str(subnet) for subnet in all_of_them if subnet is not fastest)
    why = "the fastest" if len(real) > 1 else "the only one over real interfaces"
    return fastest.network, (
        f"nodes talk over {fastest}, {why} of the networks they share; not over {others}: "
        "write network=… in the inventory to choose"
    )


def _alone(alias: str, candidates: Sequence[Address], networks: Mapping[str, NetworkFacts]) -> _Found:
    """One node has nobody to talk to: any address does, a real interface first."""
    if not candidates:
        raise NodeError(alias, *_no_address(alias, networks[alias]))
    real = [a for a in candidates if not _interface(networks[alias], a).virtual]
    return {alias: (real or list(candidates))[0]}, ()


def _only_ones(
    undeclared: Sequence[Settings],
    candidates: Mapping[str, Sequence[Address]],
    networks: Mapping[str, NetworkFacts],
) -> _Found:
    """No subnet is shared (some clouds give out /32s): then each host's only address on a real interface."""
    found = {}
    for settings in undeclared:
        alias = settings.alias
        real = [a for a in candidates[alias] if not _interface(networks[alias], a).virtual]
        if not candidates[alias]:
            raise NodeError(alias, *_no_address(alias, networks[alias]))
        if len(real) != 1:
            raise TopologyError(
                _nothing_shared(candidates), "write node_ip for each host, or network=10.0.0.0/16"
            )
        found[alias] = real[0]
    return found, (f"the hosts share no subnet; each node uses its only address: {_each(found)}",)


def _no_address(alias: str, network: NetworkFacts) -> tuple[str, str]:
    message = f"{alias}: no IPv4 address that other nodes could reach; it has {listed(network.addresses)}"
    return message, f"bring the training network of {alias} up, or write its node_ip"


def _nothing_shared(candidates: Mapping[str, Sequence[Address]]) -> str:
    shown = [f"{alias} has {listed(addresses)}" for alias, addresses in list(candidates.items())[:4]]
    more = f" and {len(candidates) - 4} more hosts" if len(candidates) > 4 else ""
    return f"there is no network in which every host has an address: {'; '.join(shown)}{more}"


def _each(found: Mapping[str, Address]) -> str:
    shown = [f"{alias} {address.ip}" for alias, address in list(found.items())[:4]]
    return ", ".join(shown) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


# --- what no choice may be -------------------------------------------------------------------------


def _refuse_loopback(members: Sequence[Settings], chosen: Mapping[str, Address]) -> None:
    remote = [settings.alias for settings in members if settings.connection != "local"]
    for settings in members:
        if remote and chosen[settings.alias].loopback:
            raise NodeError(
                settings.alias,
                f"{settings.alias}: {chosen[settings.alias].ip} is loopback, which {remote[0]} cannot reach",
                "loopback needs every node to be ansible_connection=local: write a network address",
            )


def _refuse_duplicates(members: Sequence[Settings], chosen: Mapping[str, Address]) -> None:
    owners: dict[str, str] = {}
    for settings in members:
        ip = chosen[settings.alias].ip
        if ip in owners:
            raise TopologyError(
                f"{owners[ip]} and {settings.alias} have the same node address {ip}",
                "every node needs its own: is one machine listed under two names?",
            )
        owners[ip] = settings.alias


def listed(addresses: Sequence[Address]) -> str:
    """The addresses in words, the first few of many."""
    shown = ", ".join(map(str, addresses[:6])) or "none"
    return shown + (f" and {len(addresses) - 6} more" if len(addresses) > 6 else "")
