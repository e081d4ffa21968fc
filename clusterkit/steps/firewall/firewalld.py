"""firewalld: a policy of ours for its next start, and until then the same rules in the zones that are in use.

A policy can be added to a running firewalld only by a reload, which would drop what others added at run time.
Rich rules carry no comment, so those in zones are marked by their priority.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from clusterkit.inventory.model import PortRange
from clusterkit.probes.firewall import FIREWALLD_PRIORITY, FirewallFacts, Opening
from clusterkit.probes.firewall.rules import MARK
from clusterkit.probes.firewall.shell import FIREWALLD_POLICY
from clusterkit.steps.firewall.programs import by_ports
from clusterkit.steps.firewall.traverse import Dropped

_HEAD = f"""<?xml version="1.0" encoding="utf-8"?>
<policy priority="{FIREWALLD_PRIORITY}" target="CONTINUE">
  <short>{MARK}</short>
  <description>Ports open between training nodes. `clusterkit reset` takes this back.</description>"""
_TAIL = """  <ingress-zone name="ANY"/>
  <egress-zone name="HOST"/>
</policy>"""

# Every answer is `success`, which nobody needs.
_COMMAND = "firewall-cmd --quiet"


@dataclass(frozen=True)
class Firewalld:
    """firewalld as it runs, and its policy of ours."""

    facts: FirewallFacts

    @property
    def name(self) -> str:
        return "firewalld"

    @property
    def kept_in(self) -> str | None:
        return FIREWALLD_POLICY

    def marked(self) -> frozenset[Opening]:
        running = self.facts.firewalld
        live = [each for rules in running.in_zones.values() for each in rules] if running else []
        loaded = running.in_policy if running else ()
        return frozenset([*live, *loaded, *(self.facts.firewalld_policy or ())])

    def is_kept(self, wanted: frozenset[Opening]) -> bool:
        return frozenset(self.facts.firewalld_policy or ()) == wanted

    def open(self, wanted: frozenset[Opening], dropped: Sequence[Dropped]) -> list[str]:
        running = self.facts.firewalld
        if running is None or not running.has_policies:
            return []
        lines: list[str] = []
        if running.policy_active:
            have = frozenset(running.in_policy)
            lines += _change("policy", MARK, "add", wanted - have, None)
            lines += _change("policy", MARK, "remove", have - wanted, None)
        for zone in running.zones if not running.policy_active else ():
            have = frozenset(running.in_zones.get(zone, ()))
            lines += _change("zone", zone, "add", wanted - have, FIREWALLD_PRIORITY)
        for zone, rules in running.in_zones.items():
            lines += _change("zone", zone, "remove", frozenset(rules) - wanted, FIREWALLD_PRIORITY)
        return lines if self.is_kept(wanted) else [*lines, *self._keep(wanted)]

    def _keep(self, wanted: frozenset[Opening]) -> list[str]:
        exists = self.facts.firewalld_policy is not None
        return [
            # The name of the file must end with .xml.
            "folder=$(mktemp -d)",
            f'{{ {"; ".join(_policy(wanted))}; }} >"$folder/{MARK}.xml"',
            *([f"{_COMMAND} --permanent --delete-policy={MARK}"] if exists else []),
            f'{_COMMAND} --permanent --new-policy-from-file="$folder/{MARK}.xml" --name={MARK}',
            'rm -rf "$folder"',
        ]

    def undo(self) -> list[str]:
        running, lines = self.facts.firewalld, list[str]()
        if running is not None:
            for zone, rules in running.in_zones.items():
                lines += _change("zone", zone, "remove", rules, FIREWALLD_PRIORITY)
            if running.policy_active:
                # A policy without a zone to come from has no rules in the kernel.
                lines.append(f"{_COMMAND} --policy={MARK} --remove-ingress-zone=ANY")
        if self.facts.firewalld_policy is not None:
            if running is not None:
                lines.append(f"{_COMMAND} --permanent --delete-policy={MARK}")
            lines.append(f"rm -f {FIREWALLD_POLICY} {FIREWALLD_POLICY}.old")
        return lines


def _change(where: str, name: str, verb: str, openings: Iterable[Opening], priority: int | None) -> list[str]:
    """One call for all rules. They are put together on the host: 256 nodes would be a long line."""
    lines = []
    for ports, networks in by_ports(openings).items():
        first = f'rule priority="{priority}"' if priority is not None else "rule"
        port = f'port port="{_shown(ports)}" protocol="tcp"'
        rule = f'{first} family="ipv4" source address="NETWORK" {port} accept'
        words = quote(f"--{verb}-rich-rule={rule}").replace("NETWORK", "'\"$network\"'")
        lines.append(f'for network in {" ".join(networks)}; do set -- "$@" {words}; done')
    return ["set --", *lines, f'{_COMMAND} --{where}={quote(name)} "$@"'] if lines else []


def _shown(ports: PortRange) -> str:
    return str(ports.first) if ports.first == ports.last else str(ports)


def _policy(wanted: Iterable[Opening]) -> Iterator[str]:
    """Shell commands that print the policy."""
    yield f"printf '%s\\n' {quote(_HEAD)}"
    for ports, networks in by_ports(wanted).items():
        rule = (
            f'<rule family="ipv4"><source address="%s"/>'
            f'<port port="{_shown(ports)}" protocol="tcp"/><accept/></rule>'
        )
        yield f"printf '  {rule}\\n' {' '.join(networks)}"
    yield f"printf '%s\\n' {quote(_TAIL)}"
