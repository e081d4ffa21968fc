"""The host's packet filters, from the rules that the kernel has, and what of ours is in which file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import PortRange
from clusterkit.probes.firewall import iptables, nft
from clusterkit.probes.firewall.rules import MARK, Backend, Chain, Table
from clusterkit.probes.firewall.shell import SHELL

# firewalld's rich rules carry no comment. Rules of ours that live until its restart have this priority.
FIREWALLD_PRIORITY = -29400


@dataclass(frozen=True)
class Opening:
    """TCP ports that are open to the addresses of a network."""

    network: IPv4Network
    ports: PortRange

    @cached_property
    def order(self) -> tuple[int, int, int]:
        """What openings are sorted by."""
        return int(self.network.network_address), self.network.prefixlen, self.ports.first

    @cached_property
    def source(self) -> str:
        """The network in words."""
        return str(self.network)

    def __str__(self) -> str:
        return f"{self.ports} from {self.network}"


@dataclass(frozen=True)
class UfwRule:
    """A rule in ufw's own file that lets TCP in from some addresses to some ports; `ours` by its comment."""

    opening: Opening
    ours: bool


@dataclass(frozen=True)
class Firewalld:
    """firewalld as it runs: its zones in use, rules of ours in them and in the policy that it has loaded."""

    zones: tuple[str, ...]
    has_policies: bool
    in_zones: Mapping[str, tuple[Opening, ...]]
    policy_active: bool
    in_policy: tuple[Opening, ...]


@dataclass(frozen=True)
class NftFile:
    """A file that nft's service loads: the tables in it, as `inet filter`, and whether it includes ours."""

    path: str
    tables: frozenset[str]
    includes_ours: bool


@dataclass(frozen=True)
class IptablesFile:
    """A file that a service loads: whether it has a filter table, and its lines that are ours."""

    path: str
    has_filter: bool
    lines: tuple[str, ...]


@dataclass(frozen=True)
class FirewallFacts:
    """All tables of the kernel, and what of ours the firewalls' own files hold.

    `idle_services` are those that would load such a file at boot, and are not enabled (systemd).
    """

    tables: tuple[Table, ...] = ()
    ufw: tuple[UfwRule, ...] = ()
    firewalld: Firewalld | None = None
    firewalld_policy: tuple[Opening, ...] | None = None
    nft_own: str | None = None
    nft_files: tuple[NftFile, ...] = ()
    iptables_files: tuple[IptablesFile, ...] = ()
    docker: bool = False
    idle_services: tuple[str, ...] = ()

    def bases(self, hooks: frozenset[str]) -> Iterator[tuple[Table, Chain]]:
        """Every base chain at these hooks, with its table."""
        for table in self.tables:
            for chain in table.bases(hooks):
                yield table, chain


def _parse(output: Output) -> FirewallFacts:
    parts = list(_parts(output.stdout))
    sets = iptables.ipsets("\n".join(text for head, text in parts if head == ["ipset"]))
    tables: list[Table] = []
    for head, text in parts:
        if head[:1] == ["iptables"]:
            backend: Backend = "iptables-nft" if head[1] == "nft" else "iptables-legacy"
            tables += iptables.tables(text, backend, head[2], sets)
    tables += nft.tables([text for head, text in parts if head == ["nft"] and text.strip()])
    one = {head[0]: text for head, text in parts if len(head) == 1}
    return FirewallFacts(
        tables=tuple(tables),
        ufw=tuple(_ufw(one.get("ufw", ""))),
        firewalld=_firewalld(one["firewalld"]) if "firewalld" in one else None,
        firewalld_policy=_policy_file(one["firewalld-policy"]) if "firewalld-policy" in one else None,
        nft_own=one["nft-own"].strip("\n") if "nft-own" in one else None,
        nft_files=tuple(_nft_file(head[1], text) for head, text in parts if head[0] == "nft-file"),
        iptables_files=tuple(
            _iptables_file(head[1], text) for head, text in parts if head[0] == "iptables-file"
        ),
        idle_services=tuple(head[1] for head, _ in parts if head[0] == "idle"),
        docker=any(name.startswith("DOCKER") for table in tables for name in table.chains),
    )


def _parts(text: str) -> Iterator[tuple[list[str], str]]:
    for part in re.split(r"^=====", text, flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        yield head.split(), rest


# --- ufw -------------------------------------------------------------------------------------------


_UFW = re.compile(
    r"^### tuple ### allow tcp ([\d:,]+) 0\.0\.0\.0/0 any ([\d./]+) in(?: comment=([0-9a-f]+))?$"
)


def _ufw(text: str) -> Iterator[UfwRule]:
    """`### tuple ### allow tcp 30000:65535 0.0.0.0/0 any 10.0.0.2/31 in comment=636c75…`."""
    for line in text.splitlines():
        found = _UFW.match(line)
        if found:
            ports, network, comment = found.groups()
            for each in ports.split(","):
                yield UfwRule(_opening(network, each.replace(":", "-")), _named(comment or ""))


def _named(comment: str) -> bool:
    try:
        return bytes.fromhex(comment).decode() == MARK
    except ValueError:
        return False


# --- firewalld -------------------------------------------------------------------------------------

_RICH = re.compile(r'source address="([\d./]+)" port port="([\d-]+)" protocol="tcp" accept')
_XML = re.compile(r'<source address="([\d./]+)"/>\s*<port port="([\d-]+)" protocol="tcp"/>')


def _firewalld(text: str) -> Firewalld:
    default, zone, in_policy, policy_active = "public", "", False, False
    active: list[str] = []
    zones: dict[str, list[Opening]] = {}
    policy: list[Opening] = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("default ") and len(words) == 2:
            default = words[1]
        elif words and not line[0].isspace():
            # Names of zones and of our policy begin a line; `(active)` or `(default, active)` follows.
            zone, in_policy = words[0], words[0] == MARK
            policy_active = policy_active or (in_policy and "active" in line)
            if not in_policy and "active" in line:
                active.append(zone)
        found = _RICH.search(line)
        if found:
            (policy if in_policy else zones.setdefault(zone, [])).append(_opening(*found.groups()))
    return Firewalld(
        zones=tuple(dict.fromkeys([*active, default])),
        has_policies="policies" in text.splitlines(),
        in_zones={name: tuple(found) for name, found in zones.items()},
        policy_active=policy_active,
        in_policy=tuple(policy) if policy_active else (),
    )


def _policy_file(text: str) -> tuple[Opening, ...]:
    return tuple(_opening(network, ports) for network, ports in _XML.findall(text))


def _opening(network: str, ports: str) -> Opening:
    first, _, last = ports.partition("-")
    return Opening(IPv4Network(network, strict=False), PortRange(int(first), int(last or first)))


# --- nft and iptables ------------------------------------------------------------------------------


def _nft_file(path: str, text: str) -> NftFile:
    tables = re.findall(r"^\s*(?:add\s+)?table\s+(\S+)(?:\s+([^\s{;]+))?", text, re.MULTILINE)
    includes = re.search(rf'^\s*include\s+"[^"]*{MARK}\.nft"', text, re.MULTILINE)
    # `table filter` without a family is one of `ip`.
    named = (f"{family} {name}" if name and name != "{" else f"ip {family}" for family, name in tables)
    return NftFile(path, frozenset(named), includes is not None)


def _iptables_file(path: str, text: str) -> IptablesFile:
    lines = text.splitlines()
    return IptablesFile(path, "*filter" in lines, tuple(line for line in lines if MARK in line))


FIREWALL = Probe("firewall", SHELL, _parse, timeout=15, about="firewall rules", root=True)
