"""The record of runs on this machine."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.errors import ClusterkitError, NotFound
from clusterkit.inventory.model import Secret, Settings
from clusterkit.runs.record import NodeRecord, RunRecord, RunStore, iso, new_run_id, reach, state_directory


def record(run_id: str = "20260102-030405-abcd", inventory: str = "/a/inventory.ini") -> RunRecord:
    settings = Settings(
        alias="gpu1", address="10.0.0.1", port=2222, user="u", password=Secret("canary-secret")
    )
    node = NodeRecord("gpu1", 0, "10.0.0.1", (0, 1), "/usr/bin/python3", "/r", "/w", "/l", reach(settings))
    return RunRecord(
        run_id, inventory, "train.py", ("--lr", "0.1"), 1.0, (node,), status={"state": "running"}
    )


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(record())
    loaded = store.load("20260102-030405-abcd")
    assert loaded.nodes == record().nodes
    assert loaded.args == ("--lr", "0.1")
    assert loaded.state == "running"


def test_no_password_is_recorded_and_the_file_is_private(tmp_path: Path) -> None:
    RunStore(tmp_path).save(record())
    path = tmp_path / "20260102-030405-abcd" / "run.json"
    assert "canary-secret" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_record_that_cannot_be_written_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path)
    store.save(record())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ClusterkitError, match=r"cannot be recorded in .*: No space left on device") as caught:
        store.save(replace(record(), script="other.py"))
    assert "XDG_STATE_HOME" in caught.value.hint
    assert store.load("abcd").script == "train.py"
    assert sorted(path.name for path in store.folder(record().run_id).iterdir()) == ["logs", "run.json"]


def test_todays_inventory_gives_the_password_back() -> None:
    node = record().nodes[0]
    again = node.settings(Settings(alias="gpu1", address="elsewhere", password=Secret("new")))
    assert (again.address, again.port, again.password) == ("10.0.0.1", 2222, Secret("new"))
    assert node.settings().password is None


def test_a_part_of_the_id_is_enough_if_it_fits_one(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(record("20260102-030405-abcd"))
    store.save(record("20260102-030405-abxy"))
    assert store.load("abcd").run_id == "20260102-030405-abcd"
    with pytest.raises(NotFound, match="fits 2 runs"):
        store.load("ab")
    with pytest.raises(NotFound, match="no run `zz`"):
        store.load("zz")


def test_the_newest_is_of_this_inventory_else_of_all(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(record("20260101-000000-aaaa", "/a/inventory.ini"))
    store.save(record("20260102-000000-bbbb", "/b/inventory.ini"))
    assert store.newest("/a/inventory.ini").run_id == "20260101-000000-aaaa"
    assert store.newest("/c/inventory.ini").run_id == "20260102-000000-bbbb"
    assert store.newest(None).run_id == "20260102-000000-bbbb"


def test_without_any_run_the_hint_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no run is recorded") as caught:
        RunStore(tmp_path / "none").newest(None)
    assert "clusterkit launch" in caught.value.hint


def test_a_broken_record_does_not_hide_the_others(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(record("20260101-000000-aaaa"))
    (tmp_path / "20260103-000000-cccc").mkdir()
    (tmp_path / "20260103-000000-cccc" / "run.json").write_text("{")
    assert [each.run_id for each in store.records()] == ["20260101-000000-aaaa"]


def test_the_status_keys_stand_at_the_top_of_run_json(tmp_path: Path) -> None:
    RunStore(tmp_path).save(replace(record(), status={"state": "failed", "exit_code": 7}))
    document = json.loads((tmp_path / "20260102-030405-abcd" / "run.json").read_text())
    assert (document["schema"], document["state"], document["exit_code"]) == (1, "failed", 7)


def test_run_ids_sort_by_time() -> None:
    assert new_run_id(0.0).startswith("19700101-000000-")
    assert new_run_id(1e9) < new_run_id(1.1e9)


def test_times_are_utc_with_microseconds() -> None:
    assert iso(1.5) == "1970-01-01T00:00:01.500000+00:00"
    assert iso(None) is None


def test_runs_live_under_xdg_state_home() -> None:
    assert state_directory({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == Path("/x/clusterkit/runs")
    assert state_directory({"HOME": "/h"}) == Path("/h/.local/state/clusterkit/runs")
