"""The lines of an inventory in Ansible's INI format become a Draft."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from clusterkit.errors import InventoryError
from clusterkit.inventory import nearness
from clusterkit.inventory.draft import UNGROUPED, Draft, Loop
from clusterkit.inventory.hostnames import BadName, expand, is_ipv6
from clusterkit.inventory.literals import unquoted
from clusterkit.inventory.model import Source, Value
from clusterkit.inventory.opaque import is_secret

_SECTION = re.compile(r"\[(?P<group>[^:\]\s]+)(?::(?P<kind>\w+))?\]\s*(?:#.*)?$")
_GROUP_NAME = re.compile(r"(?P<group>[^:\]\s]+)\s*(?:#.*)?$")
# A port behind the brackets, or a range that a name goes on from.
_BRACKETED_HOST = re.compile(r"\[.+\]:[0-9]+$|\[\w*:\w+(:[0-9]+)?\][\w.\[-]")
_KINDS = ("hosts", "children", "vars")


@dataclass
class _Pending:
    """A group that was named before it was declared: by `[NAME:vars]`, or as somebody's child."""

    line: int
    kind: str
    parents: list[str] = field(default_factory=list)


def parse(path: Path, lines: list[str]) -> Draft:
    """Hosts, groups and inline variables of a whole file. Raises InventoryError with file and line."""
    return _Parser(path).parse(lines)


class _Parser:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self.draft = Draft()
        self.group = UNGROUPED
        self.kind = "hosts"
        self.pending: dict[str, _Pending] = {}
        self.first_line: dict[str, int] = {}

    def parse(self, lines: list[str]) -> Draft:
        for number, text in self._meaningful(lines):
            self.line = number
            section = _SECTION.match(text)
            if section:
                self._begin(section["group"], section["kind"] or "hosts")
            elif text.startswith("[") and not self._is_host(text):
                self._fail_section(text)
            elif self.kind == "hosts":
                self._host_line(text)
            elif self.kind == "vars":
                self._variable_line(text)
            else:
                self._child_line(text)
        self._check_declared()
        return self.draft

    def _meaningful(self, lines: list[str]) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if text and text[0] not in "#;":
                yield number, text

    # Sections

    def _begin(self, group: str, kind: str) -> None:
        if kind not in _KINDS:
            self._fail(
                f"[{group}:{kind}]: there is no section type {kind!r}", "the types are :children and :vars"
            )
        self.group, self.kind = group, kind
        known = group in self.draft.groups
        self.draft.add_group(group)
        if kind == "vars":
            if not known and group not in self.pending:
                self.pending[group] = _Pending(self.line, "vars")
        elif group in self.pending:
            declared = self.pending.pop(group)
            for parent in declared.parents:
                self._add_child(parent, group)

    def _is_host(self, text: str) -> bool:
        """`[2001:db8::1]`, `[2001:db8::1]:22`, `[gpu01]:22` and `[1:3].local` are hosts, not sections."""
        word = text.split(None, 1)[0]
        return _BRACKETED_HOST.match(word) is not None or is_ipv6(word[1:].removesuffix("]"))

    def _fail_section(self, text: str) -> NoReturn:
        closed = text.split("#", 1)[0].rstrip().endswith("]")
        hint = "write [GROUP], [GROUP:children] or [GROUP:vars], without spaces"
        if closed:
            self._fail(f"{text!r} is not a section", hint)
        self._fail(
            f"{text!r} begins like a section but does not end in ']'", f"{hint}; a comment begins with #"
        )

    def _check_declared(self) -> None:
        for name, pending in self.pending.items():
            self.line = pending.line
            if pending.kind == "vars":
                self._fail(
                    f"[{name}:vars] gives variables to group {name!r}, which has no section of its own",
                    _did_you_mean(name, self._declared()) or f"add a section [{name}]",
                )
            parent = pending.parents[-1]
            if name in self.draft.hosts:
                self._fail(f"[{parent}:children] names {name!r}, which is a host", f"put it under [{parent}]")
            self._fail(
                f"[{parent}:children] names group {name!r}, which has no section of its own",
                _did_you_mean(name, self._declared()) or f"add a section [{name}]",
            )

    def _declared(self) -> list[str]:
        return [name for name in self.draft.groups if name not in self.pending]

    # Lines

    def _host_line(self, text: str) -> None:
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            self._fail("a quote is opened and not closed", "put values with spaces or # between quotes")
        try:
            names, port = expand(words[0])
        except BadName as error:
            self._fail(error.message, error.hint)
        variables = dict(self._assignment(word, words) for word in words[1:])
        for name in names:
            self._add_host(name, port, variables)

    def _add_host(self, name: str, port: int | None, variables: dict[str, Value]) -> None:
        is_new = name not in self.draft.hosts
        host = self.draft.add_host(name, self.group)
        if is_new:
            self.first_line[name] = self.line
            if port is not None:
                host.variables["ansible_port"] = Value(str(port), self._source())
        elif port is not None and str(port) != self._port_of(name):
            self.draft.warnings.append(
                f"{self._source()}: port {port} of {name} is ignored, as Ansible does, because line "
                f"{self.first_line[name]} already named this host; give the alias another name"
            )
        # Ansible gives a host line's variables to the group of that name if there is one already.
        owner = self.draft.groups.get(name, host)
        owner.variables.update(variables)

    def _port_of(self, name: str) -> str:
        value = self.draft.hosts[name].variables.get("ansible_port")
        return str(value.raw) if value else ""

    def _assignment(self, word: str, words: list[str]) -> tuple[str, Value]:
        name, equals, value = word.partition("=")
        if not equals:
            self._fail(
                f"expected NAME=VALUE after the host name, found {_without_secrets(word, ' '.join(words))}",
                _assignment_hint(word, words),
            )
        return self._named(name), Value(unquoted(value), self._source())

    def _variable_line(self, text: str) -> None:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            self._fail(
                f"expected NAME=VALUE in [{self.group}:vars], found {_without_secrets(text, text)}",
                "write NAME=VALUE, not NAME: VALUE"
                if re.match(r"\S+:\s", text)
                else f"a host belongs under [{self.group}]",
            )
        name = self._named(name)
        if name == "ansible_group_priority":
            self.draft.groups[self.group].priority = self._whole_number(name, unquoted(value))
        else:
            self.draft.groups[self.group].variables[name] = Value(unquoted(value), self._source())

    def _child_line(self, text: str) -> None:
        match = _GROUP_NAME.match(text)
        if not match:
            self._fail(
                f"expected the name of a group in [{self.group}:children], found {text!r}",
                "one group a line; hosts and variables belong in other sections",
            )
        child = match["group"]
        if child in self.draft.groups:
            self._add_child(self.group, child)
        elif child in self.pending:
            self.pending[child].parents.append(self.group)
        else:
            self.pending[child] = _Pending(self.line, "children", [self.group])

    def _add_child(self, parent: str, child: str) -> None:
        try:
            self.draft.add_child(parent, child)
        except Loop as loop:
            self._fail(
                str(loop), "a group cannot contain itself, directly or through others: take this line out"
            )

    def _named(self, name: str) -> str:
        if not name:
            self._fail(
                "there is no name before '='", "write NAME=VALUE, on a host line without spaces around '='"
            )
        return name

    def _whole_number(self, name: str, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            self._fail(
                f"{name} is {text!r}, but it has to be a whole number", "for example 10: the higher wins"
            )

    def _source(self) -> Source:
        return Source(self.path, self.line)

    def _fail(self, message: str, hint: str = "") -> NoReturn:
        raise InventoryError(self.path, self.line, message, hint)


def _assignment_hint(word: str, words: list[str]) -> str:
    following = words[words.index(word) + 1 : words.index(word) + 2]
    if following == ["="] or word == "=":
        return "take out the spaces around '='"
    if word.startswith(";"):
        return "a comment behind a host begins with #"
    return "put quotes around a value with spaces, and # before a comment"


def _without_secrets(shown: str, line: str) -> str:
    """`shown` for a message, unless the line that it is from names a secret."""
    if any(is_secret(word) for word in re.findall(r"\w+", line)):
        return "something else (not shown: the line names a secret)"
    return repr(shown)


def _did_you_mean(name: str, known: list[str]) -> str:
    near = nearness.near(name, known)
    return f"did you mean {near[0]}?" if near else ""
