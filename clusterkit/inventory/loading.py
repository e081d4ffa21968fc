"""An inventory file, and the variables files beside it, become an Inventory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterkit.inventory import ini, nearness, varfiles
from clusterkit.inventory.draft import ALL, Draft
from clusterkit.inventory.model import Group, Host, Inventory, Value
from clusterkit.inventory.recognise import read_lines


def load(path: Path) -> Inventory:
    """The whole inventory, with the variables that win for each host by Ansible's precedence.

    From weak to strong: `[all:vars]`, `[GROUP:vars]` (parents before children, then
    `ansible_group_priority`, then the name), `group_vars/all`, `group_vars/GROUP`, the host's line,
    `host_vars/HOST`. Raises NotFound if there is no such file, InventoryError with file and line for
    anything in it that cannot be used; nothing is half-read.
    """
    draft = ini.parse(path, read_lines(path))
    draft.finish()
    directory = path.parent
    group_files = _files(directory / "group_vars", draft.groups, draft.warnings)
    host_files = _files(directory / "host_vars", draft.hosts, draft.warnings)
    memberships = draft.memberships()
    hosts = {
        name: Host(
            name=name,
            variables=_won(draft, name, memberships[name], group_files, host_files),
            groups=tuple(sorted(memberships[name])),
        )
        for name in draft.hosts
    }
    groups = {
        name: Group(name, tuple(group.hosts), tuple(group.children), {**group.variables, **group_files[name]})
        for name, group in draft.groups.items()
    }
    return Inventory(path, hosts, groups, (*draft.warnings, *_same_names(draft, path)))


def _won(
    draft: Draft,
    host: str,
    groups: list[str],
    group_files: Mapping[str, Mapping[str, Value]],
    host_files: Mapping[str, Mapping[str, Value]],
) -> dict[str, Value]:
    weak_to_strong = [
        draft.groups[ALL].variables,
        *(draft.groups[group].variables for group in groups),
        group_files[ALL],
        *(group_files[group] for group in groups),
        draft.hosts[host].variables,
        host_files[host],
    ]
    return {name: value for layer in weak_to_strong for name, value in layer.items()}


def _files(directory: Path, names: Mapping[str, object], warnings: list[str]) -> dict[str, dict[str, Value]]:
    if not directory.is_dir():
        return {name: {} for name in names}
    _warn_of_orphans(directory, names, warnings)
    return {name: varfiles.variables_of(directory, name, warnings) for name in names}


def _warn_of_orphans(directory: Path, names: Mapping[str, object], warnings: list[str]) -> None:
    """A variables file of nobody is normal (several inventories share a directory), a near miss is not."""
    for path in sorted(directory.iterdir()):
        name = path.name if path.is_dir() else path.name.removesuffix(path.suffix)
        if path.name.startswith(".") or path.suffix not in varfiles.EXTENSIONS:
            continue
        if name in names or path.name in names:
            continue
        meant = nearness.slip_of(name, [known for known in names if not varfiles.files_of(directory, known)])
        if meant:
            warnings.append(f"{path}: no group or host is called {name}; did you mean {meant}?")


def _same_names(draft: Draft, path: Path) -> list[str]:
    both = [name for name in draft.groups if name in draft.hosts]
    return [
        f"{path}: {name!r} names both a host and a group, which Ansible mixes up: rename one" for name in both
    ]
