"""What preflight is told about the inventory before it asks any host."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.cli.converging import Manner, converging
from clusterkit.cli.session import Access

INVENTORY = """
[h100]
a
b
[a100]
c
d
[nodes:children]
h100
a100
"""


def test_groups_are_known_as_a_whole_where_a_part_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two models in two groups are meant, whichever hosts this call is about."""
    monkeypatch.chdir(tmp_path)
    Path("inventory.ini").write_text(INVENTORY)
    with converging("inventory.ini", "c", Access(), Manner(1, 1.0)) as made:
        groups = made.target.groups
        assert made.target.hosts == ("c",)
    assert (groups["h100"], groups["a100"]) == (("a", "b"), ("c", "d"))
