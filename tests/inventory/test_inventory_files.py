"""The inventories that the project ships are right, and say what their comments say."""

from __future__ import annotations

import re
from pathlib import Path

from clusterkit.inventory import find, load, members_pattern, select, settings
from clusterkit.inventory.model import Mount, PortRange, Settings
from clusterkit.inventory.variables import NAMES

ROOT = Path(__file__).parents[2]


def test_local_inventory_is_two_nodes_of_two_ranks_on_loopback() -> None:
    inventory = load(ROOT / "inventories/local.ini")
    both = [settings(inventory, host) for host in select(inventory, "all:!spares")]
    assert [(one.alias, one.node_ip, one.connection, one.nproc_per_node) for one, _ in both] == [
        ("node1", "127.0.0.2", "local", 2),
        ("node2", "127.0.0.3", "local", 2),
    ]
    assert [warnings for _, warnings in both] == [[], []]


def test_the_project_names_its_local_inventory() -> None:
    found = find(None, ROOT, {})
    assert ROOT / found.path == ROOT / "inventories/local.ini"
    assert found.how == "named by clusterkit.toml"
    assert members_pattern(ROOT) == "all:!spares"


def test_example_inventory_is_understood_without_a_warning() -> None:
    inventory = load(ROOT / "inventories/example.ini")
    assert inventory.warnings == ()
    members = select(inventory, "all:!spares")
    assert [host.name for host in members] == [f"gpu0{number}.lab.example.com" for number in range(1, 5)] + [
        "big"
    ]
    typed = [settings(inventory, host) for host in select(inventory, "all")]
    assert [warnings for _, warnings in typed] == [[]] * 6
    big = typed[4][0]
    assert (big.alias, big.address, big.port, big.devices) == ("big", "10.20.0.9", 2222, (0, 1, 2, 3))
    assert big.interface == "ib0"
    assert typed[5][0].interface is None
    assert big.ssh_common_args == "-o ProxyJump=train@bastion.example.com"
    assert big.volumes == ("/mnt/data:/data:ro", "/mnt/out:/out")
    assert big.container_args == ("--ulimit", "memlock=-1")
    assert big.port_range == PortRange(30000, 34999)
    assert big.mounts == (
        Mount("nas.example.com:/export/data", "/mnt/data", "nfs4", "vers=4.2,noatime"),
        Mount("nas.example.com:/export/out", "/mnt/out", "nfs4", ""),
        Mount("10.20.0.200@tcp:/scratch", "/mnt/scratch", "lustre", ""),
    )
    assert big.env == {"NCCL_IB_HCA": "mlx5_0", "FLAGS_cudnn_deterministic": "False"}


def test_every_variable_is_documented_and_nothing_else() -> None:
    page = (ROOT / "docs/inventory.md").read_text("utf-8")
    tables = page.split("## Variables", 1)[1].split("### How a value is written", 1)[0]
    named = set(re.findall(r"`([a-z_]+[a-z])`", tables))
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", tables, re.MULTILINE))
    assert sorted(NAMES - named) == []
    assert sorted(rows - NAMES) == []
    assert "| `env_NAME` |" in tables


def test_the_documented_defaults_are_the_models() -> None:
    page = (ROOT / "docs/inventory.md").read_text("utf-8")
    defaults = Settings(alias="h1", address="h1")
    for name in ("shm_size", "python", "remote_dir", "port_range", "become_user"):
        row = next(line for line in page.splitlines() if re.match(rf"\| `(ansible_)?{name}` \|", line))
        assert row.split("|")[3].strip() == f"`{getattr(defaults, name)}`", name
