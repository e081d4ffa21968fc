"""iptables, legacy or over nft: a chain of ours, to which INPUT jumps first, by a rule with our comment.

iptables keeps nothing. Where a service loads a file at boot, our lines go into that file, and nothing else
does: saving the whole set would freeze Docker's chains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, summarize_address_range

from clusterkit.inventory.model import PortRange
from clusterkit.probes.firewall import FirewallFacts, IptablesFile, Opening, iptables
from clusterkit.probes.firewall.rules import MARK, Chain, Table
from clusterkit.probes.firewall.shell import IPTABLES_FILES
from clusterkit.steps.firewall.files import replace_block
from clusterkit.steps.firewall.programs import by_ports
from clusterkit.steps.firewall.traverse import Dropped

# What loads each file at boot.
SERVICES = {file: service for file, _, service in IPTABLES_FILES}

_COMMENT = f"-m comment --comment {MARK}"
_JUMP = f"-p tcp {_COMMENT} -j {MARK}"
_FIRST = f"INPUT 1 {_JUMP}"
_A_LINE = 64


@dataclass(frozen=True)
class Iptables:
    """The filter table of one back end."""

    facts: FirewallFacts
    table: Table

    @property
    def name(self) -> str:
        return self.table.backend

    @property
    def _file(self) -> IptablesFile | None:
        return next((file for file in self.facts.iptables_files if file.has_filter), None)

    @property
    def kept_in(self) -> str | None:
        if self._file is None or SERVICES[self._file.path] in self.facts.idle_services:
            return None
        return self._file.path

    def marked(self) -> frozenset[Opening]:
        chain = self.table.chains.get(MARK)
        return frozenset(_openings(chain)) if chain else frozenset()

    def is_kept(self, wanted: frozenset[Opening]) -> bool:
        lines = self._file.lines if self._file else ()
        text = "\n".join(["*filter", *lines, "COMMIT"])
        chains = iptables.tables(text, "iptables-nft", "", {})[0].chains
        jumps = any(f"-j {MARK}" in line for line in lines)
        return jumps and MARK in chains and frozenset(_openings(chains[MARK])) == wanted

    def open(self, wanted: frozenset[Opening], dropped: Sequence[Dropped]) -> list[str]:
        command = f"{self.table.command} -w 10"
        rules = "\n".join(_rules(wanted))
        lines = [
            f"{self.table.command}-restore -w 10 --noflush <<'END'\n"
            f"*filter\n:{MARK} - [0:0]\n{rules}\nCOMMIT\nEND"
        ]
        if self._jumps() and dropped:
            # Somebody's rule has come before ours since.
            lines.append(f"{command} -D INPUT {_JUMP}")
        lines.append(f"{command} -C INPUT {_JUMP} 2>/dev/null || {command} -I {_FIRST}")
        if self._file:
            lines += replace_block(
                self._file.path,
                [f":{MARK} - [0:0]", *_rules(wanted), f"-I {_FIRST}"],
            )
        return lines

    def undo(self) -> list[str]:
        command = f"{self.table.command} -w 10"
        lines = [f"{command} -D INPUT {_JUMP}"] if self._jumps() else []
        if MARK in self.table.chains:
            lines += [f"{command} -F {MARK}", f"{command} -X {MARK}"]
        return lines

    def _jumps(self) -> bool:
        chain = self.table.chains.get("INPUT")
        return chain is not None and any(rule.verdict.target == MARK for rule in chain.rules)


def undo_files(facts: FirewallFacts) -> list[str]:
    """The services' files have no line of ours."""
    return [line for file in facts.iptables_files if file.lines for line in replace_block(file.path, [])]


def _rules(wanted: frozenset[Opening]) -> Iterator[str]:
    """iptables makes a rule of it for each network; `iptables-restore` takes lines of 10 kB."""
    for ports, networks in by_ports(wanted).items():
        port = f"--dport {ports.first}:{ports.last}"
        for first in range(0, len(networks), _A_LINE):
            sources = ",".join(networks[first : first + _A_LINE])
            yield f"-A {MARK} -s {sources} -p tcp -m tcp {port} {_COMMENT} -j ACCEPT"


def _openings(chain: Chain) -> Iterator[Opening]:
    for rule in chain.rules:
        tests = {condition.field: condition.ranges for condition in rule.conditions}
        for first, last in tests.get("source", ()):
            for network in summarize_address_range(IPv4Address(first), IPv4Address(last)):
                for ports in tests.get("destination port", ()):
                    yield Opening(network, PortRange(*ports))
