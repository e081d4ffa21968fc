"""Held against Ansible: the same hosts, groups, order and values, on every file under `cases/`."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import ClusterkitError
from clusterkit.inventory import graph, listing, load, select
from clusterkit.inventory.model import Inventory
from clusterkit.inventory.patterns import members_of

CASES = sorted(Path(__file__).parent.joinpath("cases").glob("*/inventory.ini"))
NAMES = [path.parent.name for path in CASES]
REFERENCE = Path(__file__).with_name("ansible_reference.py")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ansible") is None,
    reason="ansible-core is not installed: nothing to compare with",
)


def patterns_for(inventory: Inventory) -> list[str]:
    """Patterns of every kind, made of the names that are in the file."""
    found = [
        "all",
        "*",
        "~.*[13]",
        "all:!ungrouped",
        "all[0]",
        "all[-1]",
        "all[0:1]",
        "all[1:]",
        "all:!spares",
    ]
    for group in [name for name in inventory.groups if name.isidentifier()]:
        found += [
            group,
            f"{group}[0]",
            f"{group}[1]",
            f"{group}[0:1]",
            f"all:!{group}",
            f"all,&{group}",
            f"~{group}",
        ]
        found += [f"{group}*", f"!{group}", f"all:&{group}:!{group}[0]", f"{group}:ungrouped"]
    plain = [name for name in inventory.hosts if name.isidentifier()]
    for host in plain[:3]:
        found += [
            host,
            f"{host}*",
            f"?{host[1:]}",
            f"[{host[0]}]{host[1:]}",
            f"all:!{host}",
            f"{host},{plain[-1]}",
        ]
    return found


@pytest.fixture(scope="module")
def inventories() -> dict[str, Inventory]:
    return {path.parent.name: load(path) for path in CASES}


@pytest.fixture(scope="module")
def answers(
    inventories: dict[str, Inventory], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Ansible's answers by case, from one process that sees no configuration and no stray group_vars."""
    requests = [
        {"path": str(path), "patterns": patterns_for(inventories[path.parent.name])} for path in CASES
    ]
    directory = tmp_path_factory.mktemp("ansible")
    empty = directory / "ansible.cfg"
    empty.write_text("")
    ended = subprocess.run(
        [sys.executable, str(REFERENCE)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        cwd=directory,
        env={
            "HOME": str(directory),
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": str(empty),
        },
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return dict(zip(NAMES, json.loads(ended.stdout), strict=True))


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_hosts_groups_and_their_order(
    name: str, inventories: dict[str, Inventory], answers: dict[str, dict[str, Any]]
) -> None:
    theirs = dict(answers[name]["list"])
    ours = listing(inventories[name], show_secrets=True)
    del theirs["_meta"], ours["_meta"]
    assert ours == theirs
    assert list(inventories[name].groups) == answers[name]["groups"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_values_win(
    name: str, inventories: dict[str, Inventory], answers: dict[str, dict[str, Any]]
) -> None:
    theirs = answers[name]["list"]["_meta"]["hostvars"]
    ours = json.loads(json.dumps(listing(inventories[name], show_secrets=True)["_meta"]["hostvars"]))
    assert ours.keys() == theirs.keys()
    for host, variables in theirs.items():
        assert ours[host].keys() == variables.keys(), host
        for variable, value in variables.items():
            assert is_same(ours[host][variable], tagless(value)), (
                host,
                variable,
                ours[host][variable],
                value,
            )


def tagless(theirs: Any) -> Any:
    """Without the mark that Ansible's listing puts around text tagged `!unsafe`."""
    if isinstance(theirs, dict):
        return theirs.get("__ansible_unsafe") or {key: tagless(value) for key, value in theirs.items()}
    return [tagless(value) for value in theirs] if isinstance(theirs, list) else theirs


def is_same(ours: Any, theirs: Any) -> bool:
    """Equal, or ours is the text of a literal that is theirs (Ansible types values of host lines)."""
    if ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool):
        return True
    if not isinstance(ours, str) or isinstance(theirs, str):
        return False
    if ours == str(theirs):
        return True
    read = ast.literal_eval(ours)
    return bool((list(read) if isinstance(read, tuple | set) else read) == theirs)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_tree(
    name: str, inventories: dict[str, Inventory], answers: dict[str, dict[str, Any]]
) -> None:
    assert graph(inventories[name]) == answers[name]["graph"]


@pytest.mark.parametrize("name", NAMES)
def test_patterns_select_the_same_hosts_in_the_same_order(
    name: str, inventories: dict[str, Inventory], answers: dict[str, dict[str, Any]]
) -> None:
    inventory = inventories[name]
    for pattern, theirs in answers[name]["patterns"].items():
        ours = selected(inventory, pattern)
        if is_deep(inventory) and "[" in pattern:
            assert len(ours) == len(theirs or []), pattern
        elif is_deep(inventory):
            assert sorted(ours) == sorted(theirs or []), pattern
        else:
            assert ours == (theirs or []), pattern


def selected(inventory: Inventory, pattern: str) -> list[str]:
    """The hosts' names; no hosts where we refuse and Ansible warns."""
    try:
        return [host.name for host in select(inventory, pattern)]
    except ClusterkitError:
        return []


def is_deep(inventory: Inventory) -> bool:
    """True if Ansible's order is left to chance: it walks the third level of groups in no fixed order."""
    below_all = inventory.groups["all"].children
    return sum(bool(inventory.groups[name].children) for name in below_all) > 1 or any(
        inventory.groups[grandchild].children
        for name in below_all
        for grandchild in inventory.groups[name].children
    )


def test_every_host_is_in_all(inventories: dict[str, Inventory]) -> None:
    for name, inventory in inventories.items():
        assert set(members_of(inventory, "all")) == set(inventory.hosts), name
