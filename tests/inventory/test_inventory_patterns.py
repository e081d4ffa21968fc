"""Host patterns: what Ansible does is in the parity test; here are the words for what matches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.errors import ExitCode, InputError, NotFound
from clusterkit.inventory import load, select
from clusterkit.inventory.model import Inventory


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    monkeypatch.chdir(tmp_path)
    Path("inventory.ini").write_text(
        "lone\n[trainers]\ngpu[01:04]\n[spares]\ngpu05\n[eu:children]\nspares\ntrainers\n[nobody]\n"
    )
    return load(Path("inventory.ini"))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("all:!spares", "lone gpu01 gpu02 gpu03 gpu04"),
        ("all:!no_such_group", "lone gpu05 gpu01 gpu02 gpu03 gpu04"),
        ("trainers[1:2]", "gpu02 gpu03"),
        ("trainers[0]", "gpu01"),
        ("trainers[-1]", "gpu04"),
        ("trainers[2:]", "gpu03 gpu04"),
        ("gpu04,gpu01", "gpu04 gpu01"),
        ("gpu04:gpu01:gpu04", "gpu04 gpu01"),
        ("!trainers", "lone gpu05"),
        ("eu:&trainers:!gpu03", "gpu01 gpu02 gpu04"),
        ("!gpu03:eu:&trainers", "gpu01 gpu02 gpu04"),
        ("gp[tu]0?", "gpu01 gpu02 gpu03 gpu04 gpu05"),
        ("gpu[0]3", "gpu03"),
        ("~gpu0(1|5)", "gpu01 gpu05"),
        ("*", "lone gpu05 gpu01 gpu02 gpu03 gpu04"),
        ("trainers , spares", "gpu01 gpu02 gpu03 gpu04 gpu05"),
        ("nobody:lone", "lone"),
        ("ungrouped", "lone"),
    ],
)
def test_a_pattern_selects_in_order(inventory: Inventory, pattern: str, names: str) -> None:
    assert [host.name for host in select(inventory, pattern)] == names.split()


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("trainer", "no host or group matches 'trainer' in inventory.ini", "did you mean trainers?"),
        (
            "gpu01,gpu07x",
            "pattern 'gpu01,gpu07x': no host or group matches 'gpu07x' in inventory.ini",
            "did you mean gpu05 or gpu04 or gpu03?",
        ),
        (
            "qqq",
            "no host or group matches 'qqq' in inventory.ini",
            "there are: all, trainers, spares, eu, nobody, lone, gpu01, gpu02, gpu03, gpu04, gpu05",
        ),
        ("all:!all", "pattern 'all:!all': no host is left in inventory.ini", None),
        ("trainers:&spares", "pattern 'trainers:&spares': no host is left in inventory.ini", None),
        ("trainers[4]", "pattern 'trainers[4]': trainers has 4 hosts, counted from 0", ""),
        ("all:!gpu3", "pattern 'all:!gpu3': '!gpu3' leaves nothing out", "did you mean !gpu03?"),
        ("all:!trainer", "pattern 'all:!trainer': '!trainer' leaves nothing out", "did you mean !trainers?"),
    ],
)
def test_nothing_found_names_what_is_near(
    inventory: Inventory, pattern: str, message: str, hint: str | None
) -> None:
    with pytest.raises(NotFound) as caught:
        select(inventory, pattern)
    assert caught.value.message == message
    assert hint is None or caught.value.hint == hint
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("pattern", ["", " ", ",", "!", "all:&"])
def test_no_pattern_at_all_is_refused(inventory: Inventory, pattern: str) -> None:
    with pytest.raises(InputError, match="is not a host pattern"):
        select(inventory, pattern)


def test_a_broken_regular_expression_is_refused(inventory: Inventory) -> None:
    with pytest.raises(InputError, match=r"'~gpu\(' is not a regular expression"):
        select(inventory, "~gpu(")


def test_a_group_that_is_nearly_spares_does_not_stop_the_default(tmp_path: Path) -> None:
    (tmp_path / "i.ini").write_text("[spare]\nh1\n[a]\nh2\n")
    assert [host.name for host in select(load(tmp_path / "i.ini"), "all:!spares")] == ["h1", "h2"]


def test_an_empty_inventory_says_so(tmp_path: Path) -> None:
    (tmp_path / "i.ini").write_text("# nobody\n[a]\n")
    with pytest.raises(NotFound, match=r"i\.ini: there are no hosts in this inventory"):
        select(load(tmp_path / "i.ini"), "all:!spares")
