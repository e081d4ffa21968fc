"""Network interfaces and the IPv4 addresses on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from clusterkit.facts import Output, Probe


@dataclass(frozen=True)
class Interface:
    """One interface. `speed` is in Mbit/s, None where the driver does not know it (most virtual machines).

    `virtual` means that no hardware lies under it: docker0, veth pairs, tunnels; a bond, a VLAN or a bridge
    over a real card is not virtual.
    """

    name: str
    up: bool
    virtual: bool
    speed: int | None
    mtu: int


@dataclass(frozen=True)
class Address:
    """An IPv4 address; `secondary` for a further one in a subnet that the interface is in already."""

    ip: str
    prefix: int
    interface: str
    secondary: bool = False

    @property
    def network(self) -> IPv4Network:
        """The subnet that the address lies in."""
        return IPv4Interface(f"{self.ip}/{self.prefix}").network

    @property
    def loopback(self) -> bool:
        """True for 127.0.0.0/8."""
        return IPv4Address(self.ip).is_loopback

    def __str__(self) -> str:
        return f"{self.ip}/{self.prefix} ({self.interface})"


@dataclass(frozen=True)
class NetworkFacts:
    """The host's interfaces by name, and its IPv4 addresses in the kernel's order."""

    interfaces: dict[str, Interface]
    addresses: tuple[Address, ...]

    def owner(self, ip: str) -> Address | None:
        """The address that makes `ip` this host's own; any of 127.0.0.0/8 belongs to a loopback address."""
        for address in self.addresses:
            if address.ip == ip or (address.loopback and IPv4Address(ip) in address.network):
                return address
        return None


# What lies under an interface: its own device, or lower_NAME links to what it is made of.
# Where iproute2 is missing (or another `ip` answers), the kernel's own tables hold the same.
_SHELL = r"""
for path in /sys/class/net/*; do
    if ! { read -r mtu <"$path/mtu"; } 2>/dev/null; then continue; fi
    state=unknown; speed=
    { read -r state <"$path/operstate"; } 2>/dev/null
    { read -r speed <"$path/speed"; } 2>/dev/null
    real=no
    for below in "$path" "$path"/lower_*; do
        if [ -e "$below/device" ] || [ -e "$below/bonding" ]; then real=yes; fi
        for lowest in "$below"/lower_*; do if [ -e "$lowest/device" ]; then real=yes; fi; done
    done
    echo "interface ${path##*/} $state $real $mtu $speed"
done
LC_ALL=C ip -o -4 addr show 2>/dev/null || cat /proc/net/fib_trie /proc/net/route
"""

_INTERFACE = re.compile(r"^interface (\S+) (\S+) (yes|no) (\d+) ?(-?\d*)$", re.MULTILINE)
_ADDRESS = re.compile(
    r"^\d+: (\S+?)(?:@\S+)? +inet (\d+(?:\.\d+){3})(?: peer \S+?)?/(\d+)(.*)$", re.MULTILINE
)


def _parse(output: Output) -> NetworkFacts:
    interfaces = {
        name: Interface(name, state in ("up", "unknown"), real == "no", _speed(speed), int(mtu))
        for name, state, real, mtu, speed in _INTERFACE.findall(output.stdout)
    }
    addresses = tuple(
        Address(ip, int(prefix), name, " secondary" in rest)
        for name, ip, prefix, rest in _ADDRESS.findall(output.stdout)
    )
    return NetworkFacts(interfaces, addresses or _from_kernel_tables(output.stdout))


def _speed(text: str) -> int | None:
    # The kernel says -1, or 4294967295 as an unsigned number, for "unknown".
    return int(text) if text and 0 < int(text) < 4_294_967_295 else None


_LOCAL = re.compile(r"\|-- (\d+(?:\.\d+){3})\n\s+/32 host LOCAL")
_ROUTE = re.compile(
    r"^(\S+)\t([0-9A-F]{8})\t00000000\t[0-9A-F]{4}\t\d+\t\d+\t\d+\t([0-9A-F]{8})\b", re.MULTILINE
)


def _from_kernel_tables(text: str) -> tuple[Address, ...]:
    """Addresses from /proc/net/fib_trie, their interface and prefix from /proc/net/route."""
    routes = [
        (IPv4Network((_little_endian(network), str(IPv4Address(_little_endian(mask))))), name)
        for name, network, mask in _ROUTE.findall(text)
    ]
    routes.append((IPv4Network("127.0.0.0/8"), "lo"))
    found = []
    for ip in dict.fromkeys(_LOCAL.findall(text)):
        fitting = [route for route in routes if IPv4Address(ip) in route[0]]
        if fitting:
            network, name = max(fitting, key=lambda route: route[0].prefixlen)
            found.append(Address(ip, network.prefixlen, name))
    return tuple(found)


def _little_endian(word: str) -> int:
    return int.from_bytes(bytes.fromhex(word), "little")


NETWORK = Probe("network", _SHELL, _parse, about="network addresses")
