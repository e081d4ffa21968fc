"""What `iptables-save` prints → tables, chains and rules."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from clusterkit.probes.firewall.rules import (
    Backend,
    Chain,
    Condition,
    Field,
    Ranges,
    Rule,
    Table,
    Verdict,
    ipv4_ranges,
)

_VERDICTS: Mapping[str, Verdict] = {
    "ACCEPT": Verdict("accept"),
    "DROP": Verdict("drop"),
    "TARPIT": Verdict("drop"),
    "STEAL": Verdict("drop"),
    "REJECT": Verdict("reject"),
    "RETURN": Verdict("return"),
    "QUEUE": Verdict("unknown"),
    "NFQUEUE": Verdict("unknown"),
    "SYNPROXY": Verdict("unknown"),
}


class _NeverMatches(Exception):
    """A new TCP connection over IPv4 does not pass this test."""


def tables(text: str, backend: Backend, command: str, sets: Mapping[str, Ranges]) -> tuple[Table, ...]:
    """The tables of one `iptables-save`; `sets` are the ipsets by name, as far as they are known."""
    found: list[Table] = []
    for name, lines in _sections(text):
        chains = dict(_declared(lines))
        rules: dict[str, list[Rule]] = {chain: [] for chain in chains}
        for line in lines:
            if line.startswith("-A "):
                chain, rule = _rule(line, chains, sets)
                if rule is not None:
                    rules.setdefault(chain, []).append(rule)
        found.append(
            Table(
                backend,
                "ip",
                name,
                command,
                {
                    chain: Chain(chain, tuple(rules[chain]), hook, policy="drop" if drops else "accept")
                    for chain, (hook, drops) in chains.items()
                },
            )
        )
    return tuple(found)


def ipsets(text: str) -> dict[str, Ranges]:
    """The IPv4 addresses of every set in what `ipset save` prints; sets of other things are left out."""
    found: dict[str, list[tuple[int, int]]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and words[0] == "create" and words[2] in ("hash:ip", "hash:net", "bitmap:ip"):
            found[words[1]] = []
        elif len(words) == 3 and words[0] == "add" and words[1] in found and ":" not in words[2]:
            found[words[1]] += ipv4_ranges(words[2])
    return {name: tuple(ranges) for name, ranges in found.items()}


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in text.splitlines():
        if line.startswith("*"):
            name, lines = line[1:].strip(), []
        elif line == "COMMIT" and name:
            yield name, lines
            name = ""
        else:
            lines.append(line)


_HOOKS = {"INPUT": "input", "PREROUTING": "prerouting", "OUTPUT": "output", "POSTROUTING": "postrouting"}


def _declared(lines: list[str]) -> Iterator[tuple[str, tuple[str, bool]]]:
    """`:INPUT DROP [0:0]` → its hook, and whether its policy drops."""
    for line in lines:
        if line.startswith(":"):
            name, policy = line[1:].split()[:2]
            yield name, (_HOOKS.get(name, "") if policy != "-" else "", policy == "DROP")


def _rule(line: str, chains: Mapping[str, object], sets: Mapping[str, Ranges]) -> tuple[str, Rule | None]:
    words = shlex.split(line)
    reading = _Reading(words[2:], chains, sets)
    try:
        reading.run()
    except _NeverMatches:
        return words[1], None
    if reading.verdict is None:
        return words[1], None
    return words[1], Rule(tuple(reading.conditions), reading.verdict, line, reading.comment)


@dataclass
class _Reading:
    """One rule, word by word."""

    words: list[str]
    chains: Mapping[str, object]
    sets: Mapping[str, Ranges]
    conditions: list[Condition] = field(default_factory=list)
    verdict: Verdict | None = None
    comment: str = ""

    def run(self) -> None:
        negated = False
        while self.words and self.verdict is None:
            word = self.words.pop(0)
            if word == "!":
                negated = True
                continue
            if word in ("-j", "-g"):
                self._target(word, self.words.pop(0))
                return
            _OPTIONS.get(word, _Reading._unknown)(self, word, negated)
            negated = False

    def _target(self, word: str, target: str) -> None:
        if target in self.chains:
            self.verdict = Verdict("goto" if word == "-g" else "jump", target)
        else:
            # Targets that are not listed change or record a packet, and the next rule is asked.
            self.verdict = _VERDICTS.get(target)

    def _unknown(self, word: str, negated: bool) -> None:
        del negated
        while self.words and not self.words[0].startswith("-") and self.words[0] != "!":
            self.words.pop(0)
        self.conditions.append(Condition("unknown", names=(word.lstrip("-"),)))

    def _add(self, name: Field, ranges: Ranges, negated: bool) -> None:
        self.conditions.append(Condition(name, ranges, negated=negated))

    def _known(self, passes: bool, negated: bool) -> None:
        """A test whose outcome is known for a new TCP connection."""
        if passes == negated:
            raise _NeverMatches

    # --- one method an option ---

    def _module(self, word: str, negated: bool) -> None:
        # A module is a test through its options; this one is one without any.
        if self.words.pop(0) == "socket":
            self.conditions.append(Condition("unknown", names=("socket",)))

    def _addresses(self, word: str, negated: bool) -> None:
        side: Field = "source" if word in ("-s", "--src-range") else "destination"
        self._add(side, ipv4_ranges(*self.words.pop(0).split(",")), negated)

    def _interface(self, word: str, negated: bool) -> None:
        name = self.words.pop(0)
        shown = name[:-1] + "*" if name.endswith("+") else name
        self.conditions.append(Condition("in" if word == "-i" else "out", names=(shown,), negated=negated))

    def _protocol(self, word: str, negated: bool) -> None:
        self._known(self.words.pop(0) in ("tcp", "6", "all", "0"), negated)

    def _ports(self, word: str, negated: bool) -> None:
        side: Field = "source port" if word in ("--sport", "--sports") else "destination port"
        self._add(side, tuple(_port_range(part) for part in self.words.pop(0).split(",")), negated)
        if word == "--ports":  # either side: the other one may match too
            self.conditions.append(Condition("unknown", names=("ports",)))

    def _state(self, word: str, negated: bool) -> None:
        self._known("NEW" in self.words.pop(0).split(","), negated)

    def _flags(self, word: str, negated: bool) -> None:
        mask, wanted = (set(self.words.pop(0).split(",")) - {"NONE"} for _ in range(2))
        mask = {"FIN", "SYN", "RST", "PSH", "ACK", "URG"} if "ALL" in mask else mask
        wanted = mask if "ALL" in wanted else wanted
        self._known({"SYN"} & mask == wanted, negated)

    def _address_type(self, word: str, negated: bool) -> None:
        types = set(self.words.pop(0).split(","))
        side: Field = "to here" if word == "--dst-type" else "from here"
        if {"LOCAL", "UNICAST"} <= types or not types & {"LOCAL", "UNICAST"}:
            self._known(bool(types & {"LOCAL"}), negated)
        else:
            self.conditions.append(Condition(side, negated=negated != ("UNICAST" in types)))

    def _set(self, word: str, negated: bool) -> None:
        name, side = self.words.pop(0), self.words.pop(0)
        if name in self.sets and side in ("src", "dst"):
            self._add("source" if side == "src" else "destination", self.sets[name], negated)
        else:
            self.conditions.append(Condition("unknown", names=(f"set {name}",)))

    def _mark(self, word: str, negated: bool) -> None:
        # Nothing has marked a packet that comes in: its mark is 0.
        self._known(int(self.words.pop(0).partition("/")[0], 0) == 0, negated)

    def _packet_type(self, word: str, negated: bool) -> None:
        self._known(self.words.pop(0) == "unicast", negated)

    def _comment(self, word: str, negated: bool) -> None:
        self.comment = self.words.pop(0)

    def _never(self, word: str, negated: bool) -> None:
        """Fragments, ICMP, and packets that come from where there is no way back."""
        self._known(False, negated)


def _port_range(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    return int(first or 0), int((last or 65535) if colon else first)


_OPTIONS: Mapping[str, Callable[[_Reading, str, bool], None]] = {
    "-m": _Reading._module,
    **dict.fromkeys(("-s", "-d", "--src-range", "--dst-range"), _Reading._addresses),
    **dict.fromkeys(("-i", "-o"), _Reading._interface),
    "-p": _Reading._protocol,
    **dict.fromkeys(("--dport", "--dports", "--sport", "--sports", "--ports"), _Reading._ports),
    **dict.fromkeys(("--state", "--ctstate"), _Reading._state),
    "--tcp-flags": _Reading._flags,
    **dict.fromkeys(("--dst-type", "--src-type"), _Reading._address_type),
    "--match-set": _Reading._set,
    "--mark": _Reading._mark,
    "--pkt-type": _Reading._packet_type,
    "--comment": _Reading._comment,
    **dict.fromkeys(("-f", "--icmp-type", "--invert"), _Reading._never),
}
