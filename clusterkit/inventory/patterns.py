"""Ansible's host and group patterns: which hosts `all:!spares` means, and in which order."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

from clusterkit.errors import InputError, NotFound
from clusterkit.inventory import nearness
from clusterkit.inventory.hostnames import BadName, expand
from clusterkit.inventory.model import Host, Inventory

DEFAULT = "all:!spares"

# One term of a list that colons separate; a bracketed part may hold colons.
_TERM = re.compile(r"(?:[^\s:\[\]]|\[[^\]]*\])+")
_SUBSCRIPT = re.compile(r"(?P<of>.+)\[(?:(?P<index>-?[0-9]+)|(?P<first>[0-9]+)[:-](?P<last>[0-9]*))\]$")
_GLOB = frozenset(".?*[")


def select(inventory: Inventory, pattern: str) -> list[Host]:
    """The hosts that `pattern` means, each once, in Ansible's order.

    The order is that of the terms, and within a group its own hosts before those of its children.
    Terms with `&` and then those with `!` apply last, wherever they stand; a `!` or `&` term may name a
    group that does not exist. Raises NotFound, with the names that are near, if a term without `!` or
    `&` matches nothing, or nothing is left; InputError for a pattern that cannot be read.
    """
    terms = _split(pattern)
    wanted = [term for term in terms if term[0] not in "!&"] or ["all"]
    hosts = _unique(name for term in wanted for name in _wanted(inventory, term, pattern))
    for term in terms:
        if term[0] == "&":
            kept = set(_match(inventory, term[1:]))
            hosts = [name for name in hosts if name in kept]
    for term in terms:
        if term[0] == "!":
            dropped = set(_excluded(inventory, term, pattern))
            hosts = [name for name in hosts if name not in dropped]
    if not hosts:
        raise _nothing(inventory, pattern, [term.lstrip("!&") for term in terms])
    return [inventory.hosts[name] for name in hosts]


def members_of(inventory: Inventory, group: str) -> list[str]:
    """All host names in a group: its own, then its children's, level by level."""
    order, index = [group], 0
    while index < len(order):
        order += [child for child in inventory.groups[order[index]].children if child not in order]
        index += 1
    return _unique(host for name in order for host in inventory.groups[name].hosts)


def _split(pattern: str) -> list[str]:
    if "," in pattern:
        terms = pattern.split(",")
    elif ":" not in pattern or _is_one_address(pattern):
        terms = [pattern]
    else:
        terms = _TERM.findall(pattern)
    stripped = [term.strip() for term in terms if term.strip()]
    if not stripped or any(term in ("!", "&") for term in stripped):
        raise InputError(
            f"{pattern!r} is not a host pattern", "for example all, gpu*, trainers:!gpu03, trainers[0:3]"
        )
    return stripped


def _is_one_address(pattern: str) -> bool:
    """True for an IPv6 address, NAME:PORT, and a name whose bracketed range holds the colon."""
    try:
        expand(pattern)
    except BadName:
        return False
    return True


def _wanted(inventory: Inventory, term: str, pattern: str) -> list[str]:
    if term in inventory.hosts:
        return [term]
    found = _match(inventory, term)
    if not found and term not in inventory.groups and term != "all":
        raise _nothing(inventory, pattern, [term])
    return found


def _excluded(inventory: Inventory, term: str, pattern: str) -> list[str]:
    """The hosts to leave out. A slip would keep the host that was to be left out, so it is refused."""
    name = term[1:]
    found = _match(inventory, name)
    meant = nearness.slip_of(name, _names(inventory))
    if not found and meant and name not in inventory.groups and term != "!spares":
        raise NotFound(f"pattern {pattern!r}: {term!r} leaves nothing out", f"did you mean !{meant}?")
    return found


def _match(inventory: Inventory, term: str) -> list[str]:
    subscript = _Subscript.of(term)
    expression = subscript.expression if subscript else term
    groups = _matching(inventory.groups, expression)
    found = [host for group in groups for host in members_of(inventory, group)]
    if not groups or expression.startswith("~") or _GLOB & set(expression):
        found += _matching(inventory.hosts, expression)
    hosts = _unique(found)
    return subscript.apply(hosts, term) if subscript and hosts else hosts


def _matching(names: Iterable[str], expression: str) -> list[str]:
    try:
        is_regex = expression.startswith("~")
        matcher = re.compile(expression[1:] if is_regex else fnmatch.translate(expression))
    except re.error as error:
        raise InputError(f"host pattern {expression!r} is not a regular expression: {error}") from None
    return [name for name in names if matcher.match(name)]


@dataclass(frozen=True)
class _Subscript:
    """`[2]`, `[-1]`, `[1:3]` (both included) or `[1:]` behind an expression."""

    expression: str
    first: int
    last: int | None
    is_index: bool

    @classmethod
    def of(cls, term: str) -> _Subscript | None:
        match = None if term.startswith("~") else _SUBSCRIPT.match(term)
        if not match:
            return None
        if match["index"]:
            return cls(match["of"], int(match["index"]), None, True)
        return cls(match["of"], int(match["first"]), int(match["last"]) if match["last"] else None, False)

    def apply(self, hosts: list[str], term: str) -> list[str]:
        if not self.is_index:
            return hosts[self.first :] if self.last is None else hosts[self.first : self.last + 1]
        try:
            return [hosts[self.first]]
        except IndexError:
            count = f"{len(hosts)} host{'s'[: len(hosts) != 1]}"
            raise NotFound(f"pattern {term!r}: {self.expression} has {count}, counted from 0") from None


def _names(inventory: Inventory) -> list[str]:
    return [*inventory.groups, *inventory.hosts]


def _nothing(inventory: Inventory, pattern: str, terms: list[str]) -> NotFound:
    if not inventory.hosts:
        return NotFound(f"{inventory.path}: there are no hosts in this inventory", "write one host a line")
    names = _names(inventory)
    near = _unique(name for term in terms if term not in names for name in nearness.near(term, names))
    said = f"no host or group matches {terms[0]!r}" if len(terms) == 1 else "no host is left"
    where = "" if terms == [pattern] else f"pattern {pattern!r}: "
    hint = f"did you mean {' or '.join(near[:3])}?" if near else f"there are: {_listed(inventory)}"
    return NotFound(f"{where}{said} in {inventory.path}", hint)


def _listed(inventory: Inventory) -> str:
    groups = [name for name in inventory.groups if name != "ungrouped"]
    names = [*groups, *inventory.hosts]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
