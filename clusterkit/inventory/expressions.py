"""Jinja in a value that clusterkit needs: plain references are rendered, anything else is refused."""

from __future__ import annotations

import re
from typing import Any

from clusterkit.errors import InventoryError
from clusterkit.inventory.model import Host, Inventory, Source, Value
from clusterkit.inventory.opaque import Unsafe, is_vaulted

_REFERENCE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)\s*-?\}\}")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")


class Opaque(InventoryError):
    """The value is encrypted, or needs more of Jinja than clusterkit renders."""


def is_template(raw: Any) -> bool:
    """True if text holds a Jinja expression, statement or comment."""
    return isinstance(raw, str) and not isinstance(raw, Unsafe) and _TEMPLATE.search(raw) is not None


def rendered(inventory: Inventory, host: Host, name: str) -> Any:
    """The value of the host's variable `name`, with references to other plain variables filled in.

    A value that is one reference and nothing else keeps the type of what it refers to. Raises Opaque, with
    file, line and remedy, for a vaulted value, an unknown name, a cycle, or any other Jinja.
    """
    return _Renderer(inventory, host, name).variable(name, ())


class _Renderer:
    def __init__(self, inventory: Inventory, host: Host, wanted: str) -> None:
        self.inventory = inventory
        self.host = host
        self.wanted = wanted

    def variable(self, name: str, chain: tuple[str, ...]) -> Any:
        value = self.host.variables[name]
        if name in chain:
            circle = " → ".join([*chain[chain.index(name) :], name])
            raise self._refused(
                value, f"{name} refers to itself: {circle}", "write the value itself in one of them"
            )
        return self._value(value.raw, value, name, (*chain, name))

    def _value(self, raw: Any, value: Value, name: str, chain: tuple[str, ...]) -> Any:
        if is_vaulted(raw):
            raise self._refused(value, f"{name} is encrypted with ansible-vault, and clusterkit needs it")
        if isinstance(raw, list):
            return [self._value(item, value, name, chain) for item in raw]
        if isinstance(raw, dict):
            return {key: self._value(item, value, name, chain) for key, item in raw.items()}
        return self._text(raw, value, name, chain) if is_template(raw) else raw

    def _text(self, text: str, value: Value, name: str, chain: tuple[str, ...]) -> Any:
        alone = _REFERENCE.fullmatch(text.strip())
        if alone:
            return self._reference(alone[1], value, name, chain)
        if _TEMPLATE.search(_REFERENCE.sub("", text)):
            raise self._refused(
                value,
                f"{name} needs Jinja that clusterkit does not evaluate: it fills in {{{{ VARIABLE }}}} only",
            )
        return _REFERENCE.sub(lambda match: self._as_text(match[1], value, name, chain), text)

    def _as_text(self, reference: str, value: Value, name: str, chain: tuple[str, ...]) -> str:
        filled = self._reference(reference, value, name, chain)
        if isinstance(filled, list | dict):
            raise self._refused(value, f"{name} puts {reference}, which is not text, into a text")
        return str(filled)

    def _reference(self, reference: str, value: Value, name: str, chain: tuple[str, ...]) -> Any:
        if reference in self.host.variables:
            return self.variable(reference, chain)
        given = {
            "inventory_hostname": self.host.name,
            "inventory_hostname_short": self.host.name.split(".")[0],
            "inventory_dir": str(self.inventory.path.parent.absolute()),
            "inventory_file": str(self.inventory.path.absolute()),
        }
        if reference not in given:
            raise self._refused(value, f"{name} refers to {reference}, which is not set for {self.host.name}")
        return given[reference]

    def _refused(self, value: Value, message: str, hint: str = "") -> Opaque:
        source: Source = value.source
        bare = self.wanted.removeprefix("clusterkit_")
        return Opaque(
            source.path, source.line, message, hint or f"write a plain value as clusterkit_{bare}, which wins"
        )
