"""Bridges in the root namespace, a network namespace and cables for each host."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.errors import ClusterkitError
from clusterkit.sandbox.commands import run
from clusterkit.sandbox.requirements import path_of

NETNS_DIRECTORY = Path("/run/netns")
BRIDGE_FILTER = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
RANGE = ipaddress.IPv4Network("10.77.0.0/16")
SUBNET_BITS = 24
CONTROLLER_NUMBER = 254


@dataclass(frozen=True)
class Names:
    """What a sandbox's parts are called in the kernel. Interface names have at most 15 characters."""

    sandbox: str
    owner: str

    @property
    def tag(self) -> str:
        """The sandbox's name, or its beginning and a digest of it where it is long."""
        if len(self.sandbox) <= 8:
            return self.sandbox
        return self.sandbox[:3] + hashlib.sha256(self.sandbox.encode()).hexdigest()[:5]

    @property
    def alias(self) -> str:
        """The description that marks a bridge as ours (`ip link show` prints it as alias)."""
        return f"clusterkit sandbox {self.sandbox} in {self.owner}"[:240]

    @property
    def netns_prefix(self) -> str:
        """Sandbox names have no dot, so no sandbox's prefix begins another's."""
        return f"clusterkit.{self.sandbox}."

    def netns(self, host: str) -> str:
        """The host's network namespace, as `ip netns` lists it."""
        return self.netns_prefix + host

    def bridge(self, network: int) -> str:
        """The bridge of a network (0 is the one with the controller)."""
        return f"{self.tag}-b{network}"

    def mac(self, number: int, network: int) -> str:
        """The host's hardware address: the same after each start, or its peers would send to the old one."""
        digest = hashlib.sha256(f"{self.alias} {number} {network}".encode()).hexdigest()
        return ":".join(["02", *(digest[at : at + 2] for at in range(0, 10, 2))])

    def cable(self, number: int, network: int) -> str:
        """The root namespace's end of the cable of host `number` (from 1)."""
        return f"{self.tag}-{number:03d}{chr(ord('a') + network)}"


def choose_subnets(
    wanted: Sequence[str], count: int, taken: Iterable[ipaddress.IPv4Network]
) -> tuple[str, ...]:
    """`count` networks of 254 addresses that overlap none of `taken`; the wanted ones where they are free."""
    used = list(taken)
    chosen: list[ipaddress.IPv4Network] = []
    candidates = [ipaddress.IPv4Network(text) for text in wanted]
    candidates += list(RANGE.subnets(new_prefix=SUBNET_BITS))
    for candidate in candidates:
        if len(chosen) == count:
            break
        if not any(candidate.overlaps(other) for other in [*used, *chosen]):
            chosen.append(candidate)
    if len(chosen) < count:
        raise ClusterkitError(
            f"no free network is left in {RANGE}",
            "take a sandbox down (`clusterkit sandbox status` lists them), or remove routes into that range",
        )
    return tuple(str(network) for network in chosen)


def taken_subnets() -> tuple[ipaddress.IPv4Network, ...]:
    """Every IPv4 network that this machine has a route to or an address in."""
    texts = [route["dst"] for route in _ip_json("-4", "route", "show", "table", "all")]
    for link in _ip_json("-4", "address", "show"):
        texts += [f"{entry['local']}/{entry['prefixlen']}" for entry in link.get("addr_info", ())]
    networks = [ipaddress.IPv4Network(text, strict=False) for text in texts if text != "default"]
    return tuple(network for network in networks if network.prefixlen > 0)


def host_address(subnet: str, number: int) -> str:
    """The address of host `number` (from 1): node01 is .1, node02 is .2."""
    return str(ipaddress.IPv4Network(subnet)[number])


def controller_address(subnet: str) -> str:
    """This machine's address on the bridge of that subnet."""
    return str(ipaddress.IPv4Network(subnet)[CONTROLLER_NUMBER])


def make_bridges(names: Names, subnets: Sequence[str]) -> None:
    """The bridges are up; only the first has an address of this machine: a training network is not ours."""
    lines = []
    for network, subnet in enumerate(subnets):
        bridge = names.bridge(network)
        lines.append(f"link add {bridge} type bridge stp_state 0 forward_delay 0")
        lines.append(f'link set {bridge} alias "{names.alias}"')
        if network == 0:
            lines.append(f"addr add {controller_address(subnet)}/{SUBNET_BITS} dev {bridge}")
        lines.append(f"link set {bridge} up")
    _batch(lines)


def plug_in(names: Names, hosts: Sequence[tuple[int, str, Sequence[str]]]) -> None:
    """Each host (number, name, addresses) has its namespace with eth0, eth1 …, and a cable for each."""
    lines = []
    for number, host, addresses in hosts:
        netns = names.netns(host)
        lines.append(f"netns add {netns}")
        for network in range(len(addresses)):
            cable = names.cable(number, network)
            peer = f"peer name eth{network} address {names.mac(number, network)} netns {netns}"
            lines.append(f"link add {cable} type veth {peer}")
            lines.append(f"link set {cable} master {names.bridge(network)} up")
    _batch(lines)
    for _, host, addresses in hosts:
        inside = ["link set lo up"]
        for network, address in enumerate(addresses):
            inside.append(f"addr add {address}/{SUBNET_BITS} dev eth{network}")
            inside.append(f"link set eth{network} up")
        _batch(inside, netns=names.netns(host))


def unplug(names: Names, number: int, networks: int) -> None:
    """No packet leaves or reaches the host any more; its interfaces have lost their carrier."""
    _batch([f"link set {names.cable(number, network)} down" for network in range(networks)])


def bridges_are_filtered() -> bool:
    """Whether this machine's iptables see packets between two hosts of one bridge (br_netfilter)."""
    try:
        return BRIDGE_FILTER.read_text().strip() == "1"
    except OSError:
        return False


def set_cable(names: Names, number: int, network: int, state: str) -> None:
    """One cable of a host is `up` or `down`."""
    _batch([f"link set {names.cable(number, network)} {state}"])


def cables_down(names: Names) -> frozenset[str]:
    """The cables of this sandbox that are cut."""
    links = _ip_json("link", "show")
    return frozenset(
        link["ifname"]
        for link in links
        if link["ifname"].startswith(f"{names.tag}-") and "UP" not in link["flags"]
    )


def block_controller(names: Names, host: str, subnet: str) -> None:
    """What the host would answer to this machine is dropped without a word; other hosts notice nothing."""
    _batch([f"route replace blackhole {controller_address(subnet)}/32"], netns=names.netns(host))


def unblock_controller(names: Names, host: str) -> None:
    """The host answers this machine again."""
    _batch(["route flush type blackhole"], netns=names.netns(host))


def remove_host(names: Names, number: int, host: str, networks: int) -> None:
    """The host's cables and namespace are gone. Its processes must be gone already."""
    _remove(names, [names.cable(number, network) for network in range(networks)], [names.netns(host)])


def remove_everything(names: Names) -> tuple[str, ...]:
    """Nothing in the kernel bears this sandbox's names any more; what was there is listed."""
    links, spaces = links_of(names), netns_of(names)
    _remove(names, links, spaces)
    return (*links, *spaces)


def _remove(names: Names, links: Sequence[str], spaces: Sequence[str]) -> None:
    """As one group: the kernel waits a while for each removal, however many interfaces are in it."""
    there = [link for link in links if Path("/sys/class/net", link).exists()]
    if there:
        group = 1 + int(hashlib.sha256(names.alias.encode()).hexdigest()[:7], 16)
        _batch([*(f"link set dev {link} group {group}" for link in there), f"link del group {group}"])
    mounted = _mount_points()
    for netns in spaces:
        path = NETNS_DIRECTORY / netns
        if path.exists() and str(path) not in mounted:
            path.unlink()  # `ip netns add` was killed between making the file and mounting on it
    _batch([f"netns del {netns}" for netns in spaces if (NETNS_DIRECTORY / netns).exists()])


def _mount_points() -> frozenset[str]:
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    return frozenset(line.split()[4] for line in mounts)


def links_of(names: Names) -> tuple[str, ...]:
    """The interfaces in the root namespace that are this sandbox's; cables first.

    ClusterkitError where a bridge of our name belongs to another user's sandbox, or to something else.
    """
    links = [link for link in _ip_json("link", "show") if _is_ours(names, link["ifname"])]
    for link in links:
        is_bridge = link["ifname"].startswith(f"{names.tag}-b")
        if is_bridge and link.get("ifalias", names.alias) != names.alias:
            raise ClusterkitError(
                f"the bridge {link['ifname']} belongs to something else: {link['ifalias']}",
                "choose another --name",
            )
    return tuple(sorted((link["ifname"] for link in links), key=lambda name: "-b" in name))


def netns_of(names: Names) -> tuple[str, ...]:
    """The network namespaces that are this sandbox's."""
    try:
        entries = [path.name for path in NETNS_DIRECTORY.iterdir()]
    except FileNotFoundError:
        return ()
    return tuple(sorted(name for name in entries if name.startswith(names.netns_prefix)))


def _is_ours(names: Names, link: str) -> bool:
    rest = link.removeprefix(f"{names.tag}-")
    if rest == link:
        return False
    return (rest[0] == "b" and rest[1:].isdigit()) or (
        len(rest) == 4 and rest[:3].isdigit() and rest[3].isalpha()
    )


def _batch(lines: Sequence[str], *, netns: str | None = None) -> None:
    if not lines:
        return
    where = ["-n", netns] if netns is not None else []
    run([path_of("ip"), *where, "-batch", "-"], stdin="\n".join(lines) + "\n")


def _ip_json(*arguments: str) -> list[dict[str, Any]]:
    text = run([path_of("ip"), "-details", "-json", *arguments])
    parsed: list[dict[str, Any]] = json.loads(text or "[]")
    return [entry for entry in parsed if entry]
