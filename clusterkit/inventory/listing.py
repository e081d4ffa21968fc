"""An inventory in the two shapes that `ansible-inventory` prints: `--list` and `--graph`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from clusterkit.inventory.draft import ALL
from clusterkit.inventory.model import Inventory
from clusterkit.inventory.opaque import is_secret, is_vaulted
from clusterkit.inventory.patterns import members_of

MASK = "********"


def listing(inventory: Inventory, show_secrets: bool) -> dict[str, Any]:
    """The groups and host variables, ready for JSON. Values are as written: INI gives text.

    Without `show_secrets` whatever `is_secret` by its name, at any depth, and every vaulted value reads
    `********`; with it a vaulted value is `{"__ansible_vault": CIPHERTEXT}`.
    """
    listed: dict[str, Any] = {}
    for name in _reachable(inventory):
        group = inventory.groups[name]
        entry = {
            "hosts": list(group.hosts) if name != ALL else [],
            "children": list(group.children),
        }
        shown = {key: names for key, names in entry.items() if names}
        if shown:
            listed[name] = shown
    return {"_meta": {"hostvars": _hostvars(inventory, show_secrets)}, **listed}


def narrowed(inventory: Inventory, names: Collection[str]) -> Inventory:
    """The inventory as if it had these hosts only; its groups stay."""
    return replace(
        inventory,
        hosts={name: host for name, host in inventory.hosts.items() if name in names},
        groups={
            name: replace(group, hosts=tuple(host for host in group.hosts if host in names))
            for name, group in inventory.groups.items()
        },
    )


def graph(inventory: Inventory) -> str:
    """The tree of groups and hosts below `all`, one a line, a group again wherever it is a child."""
    return "\n".join(_branch(inventory, ALL, 0))


def _reachable(inventory: Inventory) -> list[str]:
    order = [ALL]
    for name in order:  # grows while it is walked
        order += [child for child in inventory.groups[name].children if child not in order]
    return order


def _hostvars(inventory: Inventory, show_secrets: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in members_of(inventory, ALL):
        variables = inventory.hosts[name].variables
        if variables:
            found[name] = {key: _shown(key, variables[key].raw, show_secrets) for key in sorted(variables)}
    return found


def _shown(name: str, raw: Any, show_secrets: bool) -> Any:
    if is_vaulted(raw):
        return {"__ansible_vault": str(raw)} if show_secrets else MASK
    if not show_secrets and is_secret(name) and raw not in (None, ""):
        return MASK
    if isinstance(raw, dict):
        return {str(key): _shown(str(key), item, show_secrets) for key, item in raw.items()}
    if isinstance(raw, list | tuple | set):
        return [_shown(name, item, show_secrets) for item in raw]
    if raw is None or isinstance(raw, bool | int | float | str):
        return raw
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


def _branch(inventory: Inventory, name: str, depth: int) -> Iterator[str]:
    yield _leaf(f"@{name}:", depth)
    group = inventory.groups[name]
    for child in group.children:
        yield from _branch(inventory, child, depth + 1)
    if name != ALL:
        yield from (_leaf(host, depth + 1) for host in group.hosts)


def _leaf(text: str, depth: int) -> str:
    return "  |" * depth + ("--" if depth else "") + text
