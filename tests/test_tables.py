"""The shipped tables, and a site's own entries over them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterkit import steps, tables
from clusterkit.errors import InputError
from clusterkit.inventory import project_file
from tests.steps.fleets import fleet


@pytest.mark.parametrize(
    ("cuda", "oldest", "toolkit"),
    [
        ("11.8", "450.80.02", "520.61.05"),
        ("12.4.131", "525.60.13", "550.54.14"),
        ("12.6", "525.60.13", "560.28.03"),
        ("13.0", "580.65.06", "580.65.06"),
        ("10.2", "440.33", "440.33"),
        ("12.77", "525.60.13", None),
        ("14.0", None, None),
    ],
)
def test_drivers_of_a_cuda_version(cuda: str, oldest: str | None, toolkit: str | None) -> None:
    drivers = tables.load().drivers
    assert (drivers.oldest(cuda), drivers.toolkit(cuda)) == (oldest, toolkit)


def test_what_a_cuda_version_no_longer_runs_on() -> None:
    drivers = tables.load().drivers
    assert not drivers.runs_on("13.0", "Volta")
    assert drivers.runs_on("12.6", "Volta")
    assert drivers.runs_on("13.0", "Hopper")
    assert drivers.runs_on("99.0", "Volta")


@pytest.mark.parametrize(
    ("code", "status", "word"),
    [
        (79, "failed", "reboot"),
        (48, "failed", "drain"),
        (31, "warning", "program"),
        (45, "warning", "before"),
        (43, "ok", ""),
        (9999, "warning", "not in the table"),
    ],
)
def test_what_an_error_number_means(code: int, status: str, word: str) -> None:
    xid = tables.load().xid(code)
    assert (xid.code, xid.status) == (code, status)
    assert word in xid.advice


def test_no_number_is_in_two_classes_and_each_that_is_shown_says_what_to_do() -> None:
    from clusterkit.inventory.toml import read_toml

    classes = read_toml(tables.DATA / "xids.toml")["classes"].values()
    codes = [code for entry in classes for code in entry["codes"]]
    assert len(codes) == len(set(codes))
    assert all(xid.advice for xid in tables.load().xids.values() if xid.status != "ok")


def test_a_site_replaces_single_entries(tmp_path: Path) -> None:
    xids, drivers = tmp_path / "xids.toml", tmp_path / "drivers.toml"
    xids.write_text(
        '[classes.harmless]\nstatus = "ok"\ncodes = [31]\n'
        '[classes.ours]\nstatus = "failed"\ncodes = [94]\nadvice = "call Ann"\n'
    )
    drivers.write_text('[minimum]\n"12" = "470.57.02"\n')
    found = tables.load(drivers, xids)
    assert [found.xid(code).status for code in (31, 94, 79)] == ["ok", "failed", "failed"]
    assert found.xid(94).advice == "call Ann"
    assert (found.drivers.oldest("12.4"), found.drivers.oldest("11.8")) == ("470.57.02", "450.80.02")


def test_an_error_of_a_switch_is_as_grave_as_the_driver_says_or_a_site(tmp_path: Path) -> None:
    shipped = tables.load()
    assert shipped.sxid(20034, fatal=True).status == "failed"
    assert shipped.sxid(20034, fatal=False).status == "warning"
    assert shipped.sxid(20034, fatal=True).advice.startswith("an NVSwitch failed: reboot the host")
    own = tmp_path / "xids.toml"
    own.write_text('[switch.known]\nstatus = "ok"\ncodes = [12028]\n[switch.corrected]\nstatus = "failed"\n')
    site = tables.load(xid_table=own)
    assert [site.sxid(code, fatal=False).status for code in (12028, 12029)] == ["ok", "failed"]
    assert site.sxid(12029, fatal=False).advice == shipped.sxid(12029, fatal=False).advice
    assert site.xid(79) == shipped.xid(79)


def test_a_class_keeps_the_shipped_words(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[classes.reboot]\nstatus = "failed"\ncodes = [62]\n')
    assert "reseat" in tables.load(None, tmp_path / "x.toml").xid(62).advice


def test_a_launch_judges_the_driver_by_the_site_s_table(tmp_path: Path) -> None:
    case = Path(__file__).parent / "cases/steps/driver-version/image-needs-cuda-13.json"
    made = fleet(json.loads(case.read_text()))
    (tmp_path / "drivers.toml").write_text('[minimum]\n"13" = "550.54.14"\n')
    given = (tuple(made.members.values()), made.facts, made.topology)
    said = [
        next(each.status for each in steps.check(*given, tables=site) if each.name == "driver version")
        for site in (None, tables.load(tmp_path / "drivers.toml"))
    ]
    assert said == ["failed", "warning"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[classes.a]\nstatus = 'bad'\ncodes = [1]", "classes.a cannot be used"),
        ("[classes.a]\nstatus = 'ok'\ncodes = ['1']", "classes.a cannot be used"),
        ("classes = 3", "classes cannot be used"),
        ("[switch.mine]\nstatus = 'ok'", "switch.mine cannot be used"),
        ("[classes", "not valid TOML"),
    ],
)
def test_an_xid_table_that_cannot_be_used_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(InputError, match=words) as raised:
        tables.load(None, tmp_path / "x.toml")
    assert "x.toml" in raised.value.message


@pytest.mark.parametrize(
    "text", ["[minimum]\n'12' = 525", "[own]\n'12.4' = 'new'", "[dropped]\n'13' = 'Volta'", "[minimal]\n"]
)
def test_a_driver_table_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "d.toml").write_text(text)
    with pytest.raises(InputError, match=r"d\.toml"):
        tables.load(tmp_path / "d.toml")


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        tables.load(tmp_path / "none.toml")


def test_the_project_names_its_tables(tmp_path: Path) -> None:
    assert project_file(tmp_path, "xid_table") is None
    (tmp_path / "clusterkit.toml").write_text('xid_table = "site/xids.toml"\n')
    assert project_file(tmp_path, "xid_table") == tmp_path / "site" / "xids.toml"
