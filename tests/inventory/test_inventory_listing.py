"""The listing hides secrets; its shape is held against Ansible in the parity test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterkit.inventory import graph, listing, load

INI = """[a]
h1 ansible_password=pw1 ansible_ssh_pass=pw2 ansible_become_pass='pw3' x=shown
h2 ansible_become_password=pw4 ansible_sudo_pass=pw5 clusterkit_ansible_password=pw6 ansible_password=
[a:vars]
env_WANDB_API_KEY=pw7
passive=shown
"""
YAML = """
vaulted: !vault |
  $ANSIBLE_VAULT;1.1;AES256
  3130
db: {user: me, password: pw8, nested: [{token: pw9}]}
list_secret: [pw10]
day: 2024-01-31
"""


@pytest.fixture
def inventory_path(tmp_path: Path) -> Path:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "a.yml").write_text(YAML)
    (tmp_path / "inventory.ini").write_text(INI)
    return tmp_path / "inventory.ini"


def hostvars(path: Path, show_secrets: bool) -> dict[str, Any]:
    found: dict[str, Any] = listing(load(path), show_secrets)["_meta"]["hostvars"]
    return found


def test_secrets_are_masked(inventory_path: Path) -> None:
    text = json.dumps(hostvars(inventory_path, False))
    assert not [number for number in range(1, 11) if f"pw{number}" in text]
    assert "ANSIBLE_VAULT" not in text
    shown = hostvars(inventory_path, False)
    assert shown["h1"]["ansible_password"] == "********"
    assert shown["h1"]["vaulted"] == "********"
    assert (shown["h1"]["x"], shown["h1"]["passive"], shown["h1"]["db"]["user"]) == ("shown", "shown", "me")
    assert shown["h2"]["ansible_password"] == ""


def test_secrets_are_shown_when_asked_for(inventory_path: Path) -> None:
    shown = hostvars(inventory_path, True)
    assert (shown["h1"]["ansible_password"], shown["h1"]["db"]["password"]) == ("pw1", "pw8")
    assert shown["h1"]["vaulted"]["__ansible_vault"].startswith("$ANSIBLE_VAULT;1.1")
    assert shown["h1"]["day"] == "2024-01-31"


def test_the_graph_shows_a_group_wherever_it_is_a_child(tmp_path: Path) -> None:
    (tmp_path / "i.ini").write_text("[a]\nh1\n[top:children]\na\n[other:children]\na\n")
    assert graph(load(tmp_path / "i.ini")).splitlines() == [
        "@all:",
        "  |--@ungrouped:",
        "  |--@top:",
        "  |  |--@a:",
        "  |  |  |--h1",
        "  |--@other:",
        "  |  |--@a:",
        "  |  |  |--h1",
    ]


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = "import sys, clusterkit.inventory; print({'yaml', 'jinja2', 'tomllib'} & set(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.strip() == "set()"
