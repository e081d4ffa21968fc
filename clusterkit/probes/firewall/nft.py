"""What `nft -j list table` prints → tables, chains and rules (libnftables-json(5))."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusterkit.probes.firewall.rules import (
    Chain,
    Condition,
    Field,
    Kind,
    Ranges,
    Rule,
    Table,
    Verdict,
    ipv4_ranges,
)

# A rule over a set of pairs becomes a rule for each pair, up to as many.
MOST_ALTERNATIVES = 512

_FAMILIES = ("ip", "inet", "netdev")
_KINDS: Mapping[str, Kind] = {
    "accept": "accept",
    "drop": "drop",
    "reject": "reject",
    "return": "return",
    "jump": "jump",
    "goto": "goto",
    "queue": "unknown",
    "synproxy": "unknown",
}
# Statements that neither test nor decide.
_EFFECTS = frozenset(
    {"counter", "log", "mangle", "notrack", "set", "comment", "ct helper", "continue", "flow", "meter"}
)

Tests = tuple[Condition, ...]


class _NeverMatches(Exception):
    """A new TCP connection over IPv4 does not pass this test."""


def tables(documents: Sequence[str]) -> tuple[Table, ...]:
    """The tables that IPv4 packets pass through, one document a table.

    A set whose elements were left out (`nft --terse`, which has no empty list) is one that is not known.
    Raises ValueError or KeyError for what is not nft's JSON.
    """
    found: list[Table] = []
    for document in documents:
        entries = [entry for entry in json.loads(document)["nftables"] if "metainfo" not in entry]
        for entry in entries:
            if "table" in entry and entry["table"]["family"] in _FAMILIES:
                found.append(_table(entry["table"], entries))
    return tuple(found)


def _table(table: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> Table:
    family, name = table["family"], table["name"]
    own = [(kind, each) for entry in entries for kind, each in entry.items() if _within(each, family, name)]
    sets = {each["name"]: each.get("elem") for kind, each in own if kind in ("set", "map")}
    rules: dict[str, list[Rule]] = {each["name"]: [] for kind, each in own if kind == "chain"}
    for kind, each in own:
        if kind == "rule":
            rules[each["chain"]] += _rules(each, sets)
    chains = {each["name"]: _chain(each, rules[each["name"]]) for kind, each in own if kind == "chain"}
    addresses = {name: _addresses(elements) for name, elements in sets.items() if elements}
    return Table("nft", family, name, "nft", chains, addresses)


def _within(each: Any, family: str, table: str) -> bool:
    return isinstance(each, Mapping) and each.get("family") == family and each.get("table") == table


def _chain(chain: Mapping[str, Any], rules: list[Rule]) -> Chain:
    # A chain that translates addresses, or reroutes, sees a connection but decides nothing.
    hook = chain.get("hook", "") if chain.get("type", "filter") != "nat" else ""
    policy = chain.get("policy", "accept")
    devices = chain.get("dev", [])
    if devices:
        only = Condition("in", names=(devices,) if isinstance(devices, str) else tuple(devices))
        rules = [replace(rule, conditions=(only, *rule.conditions)) for rule in rules]
        if policy == "drop":
            rules.append(Rule((only,), Verdict("drop"), f"policy drop of {chain['name']}"))
            policy = "accept"
    return Chain(chain["name"], tuple(rules), hook, int(chain.get("prio", 0)), policy)


def _addresses(elements: Any) -> Ranges:
    try:
        return tuple(_address(element) for element in elements)
    except (ValueError, KeyError, TypeError, _NeverMatches):
        return ()


def _rules(rule: Mapping[str, Any], sets: Mapping[str, Any]) -> list[Rule]:
    reading = _Reading(sets)
    text = f"{rule['family']} {rule['table']} {rule['chain']} handle {rule['handle']}"
    try:
        found = list(reading.run(rule.get("expr", [])))
    except _NeverMatches:
        found = list(reading.decided)
    comment = rule.get("comment", "")
    return [Rule(tests, verdict, text, comment, rule["handle"]) for tests, verdict in found]


@dataclass
class _Reading:
    """One rule, statement by statement: the ways in which its tests may be passed so far."""

    sets: Mapping[str, Any]
    ways: list[Tests] = field(default_factory=lambda: [()])
    decided: list[tuple[Tests, Verdict]] = field(default_factory=list)

    def run(self, statements: Sequence[Any]) -> Iterator[tuple[Tests, Verdict]]:
        """The rule's tests and verdicts, in the order in which they are asked."""
        for statement in statements:
            kind, said = _one(statement)
            if kind == "match":
                self._narrow(_match(said, self.sets))
            elif kind == "vmap":
                self._map(said)
            elif kind in _KINDS:
                verdict = _verdict(kind, said)
                return iter([*self.decided, *((way, verdict) for way in self.ways)])
            elif kind == "xt" and said.get("name") == "REJECT":
                self.decided += [(way, Verdict("reject")) for way in self.ways]
            elif kind not in _EFFECTS:
                self._narrow([(_unknown(kind),)])
        return iter(self.decided)

    def _narrow(self, alternatives: Sequence[Tests]) -> None:
        self.ways = [way + tests for way in self.ways for tests in alternatives]

    def _map(self, said: Mapping[str, Any]) -> None:
        """A verdict for each value of the key."""
        for value, verdicts in _pairs(_elements(said["data"], self.sets)):
            kind, target = next(iter(verdicts.items()))
            if kind not in _KINDS:
                continue
            try:
                alternatives = _compare(said["key"], "==", value, self.sets)
            except _NeverMatches:
                continue
            for way in self.ways:
                self.decided += [(way + tests, _verdict(kind, target)) for tests in alternatives]


def _one(statement: Any) -> tuple[str, Any]:
    """`{"match": …}` → its only key and value; some statements are a bare word."""
    return next(iter(statement.items())) if isinstance(statement, Mapping) else (statement, None)


def _pairs(elements: Any) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    for element in elements if isinstance(elements, list) else ():
        yield element[0], element[1]


def _elements(data: Any, sets: Mapping[str, Any]) -> Any:
    if isinstance(data, str) and data.startswith("@"):
        return sets.get(data[1:])
    return data.get("set", data) if isinstance(data, Mapping) else data


def _verdict(kind: str, said: Any) -> Verdict:
    target = said.get("target", "") if isinstance(said, Mapping) and kind in ("jump", "goto") else ""
    return Verdict(_KINDS[kind], target)


# --- tests -----------------------------------------------------------------------------------------


def _match(said: Mapping[str, Any], sets: Mapping[str, Any]) -> list[Tests]:
    return _compare(said["left"], said["op"], said["right"], sets)


def _compare(left: Any, op: str, right: Any, sets: Mapping[str, Any]) -> list[Tests]:
    """The ways to pass `left OP right`, each a conjunction; [()] if it always holds."""
    if op not in ("==", "!=", "in"):
        return _ordered(left, op, right)
    values = _values(right, sets)
    if values is None:
        return [(_unknown(str(right)),)]
    kind, said = next(iter(left.items())) if isinstance(left, Mapping) else ("", left)
    if kind == "concat":
        return _concat(said, op, values, sets)
    test = _TESTS.get(kind)
    return [test(said, values, op == "!=")] if test else [(_unknown(kind),)]


def _values(right: Any, sets: Mapping[str, Any]) -> list[Any] | None:
    """What is compared with, as a list; None where a set's elements were not read."""
    found = _elements(right, sets)
    if found is None:
        return None
    values = found if isinstance(found, list) else [found]
    # An element may carry a time-out or a counter.
    return [each["elem"]["val"] if isinstance(each, Mapping) and "elem" in each else each for each in values]


def _ordered(left: Any, op: str, right: Any) -> list[Tests]:
    """`tcp dport >= 30000` is a range."""
    if not isinstance(right, int):
        return [(_unknown(op),)]
    last = {"<": (0, right - 1), "<=": (0, right), ">": (right + 1, 65535), ">=": (right, 65535)}
    value = {"range": list(last[op])} if op in last else right
    return _compare(left, "==", value, {}) if op in last else [(_unknown(op),)]


def _concat(parts: Sequence[Any], op: str, values: Sequence[Any], sets: Mapping[str, Any]) -> list[Tests]:
    if op == "!=" or len(values) > MOST_ALTERNATIVES:
        return [(_unknown("concatenation"),)]
    ways: list[Tests] = []
    for value in values:
        try:
            tests: Tests = ()
            for part, component in zip(parts, value["concat"], strict=True):
                for way in _compare(part, "==", component, sets):
                    tests += way
            ways.append(tests)
        except _NeverMatches:
            continue
    if not ways:
        raise _NeverMatches
    return ways


def _payload(said: Mapping[str, Any], values: list[Any], negated: bool) -> Tests:
    place = (said.get("protocol"), said.get("field"))
    if "base" in said:
        return (_unknown("raw bytes"),)
    if place[0] == "ip" and place[1] in ("saddr", "daddr"):
        side: Field = "source" if place[1] == "saddr" else "destination"
        return (Condition(side, tuple(_address(value) for value in values), negated=negated),)
    if place[0] in ("tcp", "th") and place[1] in ("sport", "dport"):
        side = "source port" if place[1] == "sport" else "destination port"
        return (Condition(side, tuple(_numbers(value) for value in values), negated=negated),)
    if place == ("tcp", "flags"):
        return _known("syn" in values, negated)
    if place == ("ip", "protocol"):
        return _known(bool({"tcp", 6} & set(map(_plain, values))), negated)
    if place[0] in ("ip", "tcp", "ether"):
        return (_unknown(f"{place[0]} {place[1]}"),)
    raise _NeverMatches  # another protocol's header


def _meta(said: Mapping[str, Any], values: list[Any], negated: bool) -> Tests:
    key = said["key"]
    plain = set(map(_plain, values))
    if key in ("iif", "iifname", "oif", "oifname"):
        names = tuple(str(value) for value in values)
        return (Condition("in" if key.startswith("i") else "out", names=names, negated=negated),)
    if key == "l4proto":
        return _known(bool({"tcp", 6} & plain), negated)
    if key in ("nfproto", "protocol"):
        return _known(bool({"ipv4", "ip", 2, 0x0800} & plain), negated)
    if key == "mark":
        return _known(0 in plain, negated)
    if key == "pkttype":
        return _known(bool({"unicast", "host", 0} & plain), negated)
    return (_unknown(f"meta {key}"),)


def _ct(said: Mapping[str, Any], values: list[Any], negated: bool) -> Tests:
    if said["key"] == "state":
        return _known("new" in map(_plain, values), negated)
    if said["key"] == "status":
        return _known(False, negated)
    if said["key"] == "mark":
        return _known(0 in map(_plain, values), negated)
    return (_unknown(f"ct {said['key']}"),)


def _fib(said: Mapping[str, Any], values: list[Any], negated: bool) -> Tests:
    flags = said.get("flags", [])
    if said.get("result") == "type":
        side: Field = "to here" if "daddr" in flags else "from here"
        types = {"local", "unicast"} & set(map(_plain, values))
        if len(types) == 1:
            return (Condition(side, negated=negated != (types == {"unicast"})),)
        return _known(bool(types), negated)
    # "No way back": there is one to every node.
    return _known(not (values == [False] or "missing" in values), negated)


def _masked(said: Sequence[Any], values: list[Any], negated: bool) -> Tests:
    """`tcp flags & (fin | syn) == syn`, `meta mark & 0xff == 1`."""
    of, mask = said
    if isinstance(of, Mapping) and of.get("payload", {}).get("field") == "flags":
        flags = {"syn"} & set(_flags(mask))
        return _known(flags == {flag for value in values for flag in _flags(value)}, negated)
    if isinstance(of, Mapping) and next(iter(of)) in ("meta", "ct") and "mark" in str(of):
        return _known(values == [0], negated)
    return (_unknown("bits"),)


def _flags(said: Any) -> list[str]:
    if isinstance(said, Mapping):
        return [flag for part in next(iter(said.values())) for flag in _flags(part)]
    return [flag for part in said for flag in _flags(part)] if isinstance(said, list) else [str(said)]


_TESTS: Mapping[str, Callable[[Any, list[Any], bool], Tests]] = {
    "payload": _payload,
    "meta": _meta,
    "ct": _ct,
    "fib": _fib,
    "&": _masked,
}


def _known(passes: bool, negated: bool) -> Tests:
    """A test whose outcome is known for a new TCP connection."""
    if passes == negated:
        raise _NeverMatches
    return ()


def _unknown(name: str) -> Condition:
    return Condition("unknown", names=(name,))


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int)) else repr(value)


def _address(value: Any) -> tuple[int, int]:
    """An element of a set of addresses; _NeverMatches for an IPv6 one."""
    text = value
    if isinstance(value, Mapping) and "elem" in value:
        return _address(value["elem"]["val"])
    if isinstance(value, Mapping) and "prefix" in value:
        text = f"{value['prefix']['addr']}/{value['prefix']['len']}"
    elif isinstance(value, Mapping) and "range" in value:
        text = "-".join(value["range"])
    if not isinstance(text, str):
        raise ValueError(f"no address: {value!r}")
    (found,) = ipv4_ranges(text)
    return found


def _numbers(value: Any) -> tuple[int, int]:
    if isinstance(value, Mapping) and "range" in value:
        return int(value["range"][0]), int(value["range"][1])
    return int(value), int(value)
