"""When gathered logs were written, kept beside them; and times as people write them."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from clusterkit.errors import InputError
from clusterkit.runs import times
from clusterkit.runs.gathered import GatheredLogs


def test_what_is_kept_is_found_again_and_nothing_twice(tmp_path: Path) -> None:
    log = tmp_path / "rank-0003.log"
    for _ in range(2):
        with GatheredLogs(lambda key: tmp_path / key) as logs:
            logs.write("rank-0003.log", 0, b"0123456789")
            logs.note("rank-0003.log", [(4, 100.0), (10, 101.5)])
            logs.note("rank-0003.log", [(10, 101.5)])
    assert times.beside(log).read_text() == "4 100.000\n10 101.500\n"
    written = times.kept(log)
    assert [written.at(offset) for offset in (0, 3, 4, 9, 10)] == [100.0, 100.0, 101.5, 101.5, None]
    assert [written.before(at) for at in (99, 100, 100.1, 101.5, 200)] == [0, 0, 4, 4, 10]


def test_a_log_that_begins_anew_has_new_times(tmp_path: Path) -> None:
    with GatheredLogs(lambda key: tmp_path / key) as logs:
        logs.write("a.log", 0, b"0123456789")
        logs.note("a.log", [(10, 100.0)])
        logs.truncate("a.log")
        logs.write("a.log", 0, b"01")
        logs.note("a.log", [(2, 90.0)])
    assert times.kept(tmp_path / "a.log").at(1) == 90.0


def test_a_log_without_times_or_with_damaged_ones(tmp_path: Path) -> None:
    assert times.kept(tmp_path / "a.log").at(0) is None
    (tmp_path / "a.times").write_bytes(b"1 5.0\n\xff\n2\n3 x\n4 6.0\n")
    assert times.kept(tmp_path / "a.log").at(2) == 6.0


@pytest.mark.parametrize(
    ("text", "before"), [("90s", 90), ("10m", 600), ("2h30m", 9000), ("1.5d", 129600), ("0s", 0)]
)
def test_spans(text: str, before: float) -> None:
    assert times.since(text, 1_000_000.0) == 1_000_000.0 - before


def test_points_in_time() -> None:
    wanted = datetime(2026, 12, 1, 9, 30, tzinfo=timezone.utc).timestamp()
    assert times.since("2026-12-01T09:30Z", 0) == wanted
    assert times.since("2026-12-01T10:30+01:00", 0) == wanted
    assert times.since("2026-12-01 09:30", 0) == datetime(2026, 12, 1, 9, 30).timestamp()


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "yesterday", "2026-13-01"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InputError, match="not a time"):
        times.since(text, 0)
