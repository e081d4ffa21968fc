"""Runs as the hosts remember them, and which of them are chosen; what a host says is not believed blindly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clusterkit.errors import InputError, NotFound, Unreachable
from clusterkit.finding import Absent, Found, choose
from clusterkit.inventory.model import Secret, Settings
from clusterkit.pruning import directories
from clusterkit.runs import filters, onhosts
from clusterkit.runs.record import NodeRecord, RunRecord, as_document

REACH = {"address": "10.0.0.1", "port": 22, "user": "u", "ssh_common_args": "-o ProxyCommand=evil"}
RUN = "20260102-030405-abcd"


def node(host: str, rank: int, directory: str = "/h/.clusterkit") -> NodeRecord:
    run_dir = f"{directory}/{host}/runs/{RUN}"
    return NodeRecord(
        host, rank, f"10.0.0.{rank}", (rank,), "/usr/bin/python3", run_dir, "/w", f"{run_dir}/logs", REACH
    )


RECORD = RunRecord(RUN, "/first/inventory.ini", "train.py", (), 1000.0, (node("a", 0), node("b", 1)))
MEMBERS = {"a": Settings(alias="a", address="192.0.2.1", password=Secret("word"))}


def test_what_a_host_keeps_says_no_way_to_any_host() -> None:
    text = onhosts.text(replace(RECORD, status={"state": "staging"}))
    assert text.count("\n") == 1, "a line, so that several can be read at once"
    assert "evil" not in text
    assert "10.0.0.1" in text
    copy = onhosts.parse(text)
    assert copy is not None
    assert (copy.script, copy.nodes[1].ranks, copy.state) == ("train.py", (1,), "planned")
    for broken in ("", "[]", "{}", '{"plan": 3}', '{"plan": {"nodes": []}}'):
        assert onhosts.parse(broken) is None


def test_each_host_speaks_for_itself_and_the_reader_says_the_way() -> None:
    lying = replace(RECORD, nodes=(node("a", 0, "/evil"), node("b", 1, "/evil")))
    merged = onhosts.merged({"a": RECORD, "b": lying}, MEMBERS, "/mine.ini")
    assert merged is not None
    first, second = merged.nodes
    assert first.run_dir.startswith("/h/"), "b's word about a does not count"
    assert second.run_dir.startswith("/evil/")
    assert (first.reach["address"], second.reach) == ("192.0.2.1", {})
    assert "word" not in json.dumps(as_document(merged))
    assert "evil" not in str(first.reach)
    assert onhosts.merged({}, MEMBERS, "/mine.ini") is None


def test_the_newest_run_and_parts_of_an_identifier() -> None:
    silent = {"c": Unreachable("c", "tcp", "c: refused")}
    found = Found({"a": ("20260101-x", "20260103-y"), "b": ("20260103-y",)}, silent)
    assert choose(None, found, [], "i.ini") == "20260103-y"
    assert choose(None, found, ["20260104-z"], "i.ini") == "20260104-z", "what is recorded here counts too"
    assert choose("-x", found, [], "i.ini") == "20260101-x"
    assert found.hosts_of("20260103-y") == ["a", "b"]
    with pytest.raises(NotFound, match=r"`2026` fits 2 runs on the 2 hosts of i\.ini"):
        choose("2026", found, [], "i.ini")
    with pytest.raises(NotFound, match=r"no run `q` on the 2 hosts of i\.ini \(c did not answer\)"):
        choose("q", found, [], "i.ini")
    with pytest.raises(NotFound, match=r"there is no run on the 1 host of i\.ini"):
        choose(None, Found({"a": ()}, {}), [], "i.ini")


def test_a_node_without_a_way_to_it() -> None:
    with pytest.raises(Unreachable, match=r"b: it is a node of the run, but i\.ini does not name it"):
        Absent("b", "i.ini").run("true", timeout=1)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90min", 5400.0), ("12h", 43200.0), ("7d", 604800.0), ("1.5 h", 5400.0)]
)
def test_time_spans(text: str, seconds: float) -> None:
    assert filters.seconds(text) == seconds
    assert filters.since(text, 1e9) == 1e9 - seconds


def test_dates_and_slips() -> None:
    assert filters.since("1970-01-02", 0) == 86400
    assert filters.since("1970-01-02T01:00+01:00", 0) == 86400
    for slip in ("5", "d", "3 weeks ago", "2026-13-01"):
        with pytest.raises(InputError):
            filters.since(slip, 0)
    assert filters.states("running, failed") == frozenset({"running", "failed"})
    with pytest.raises(InputError, match="--state done: there is no such state"):
        filters.states("done")


def test_which_runs_go() -> None:
    records = [replace(RECORD, run_id=str(day), created_at=day * 86400.0) for day in (9, 8, 5, 1)]
    now = 10 * 86400.0

    def left(older_than: float | None, keep: int) -> list[str]:
        return [record.run_id for record in filters.beyond(records, now, older_than, keep)]

    assert left(None, 3) == ["1"]
    assert left(3 * 86400, 0) == ["5", "1"]
    assert left(3 * 86400, 3) == ["1"]
    assert [r.run_id for r in filters.fitting(records, None, 8 * 86400.0)] == ["9", "8"]
    assert list(filters.fitting(records, frozenset({"running"}), None)) == []


@pytest.mark.parametrize(
    ("run_dir", "log_dir", "paths"),
    [
        (f"/h/a/runs/{RUN}", f"/h/a/runs/{RUN}/logs", [f"/h/a/runs/{RUN}"]),
        (f"/h/a/runs/{RUN}", f"/var/tmp/x/{RUN}/logs", [f"/h/a/runs/{RUN}", f"/var/tmp/x/{RUN}"]),
        (f"/h/a/runs/{RUN}", "/home/u/logs", [f"/h/a/runs/{RUN}"]),
        ("/home/u", "/home/u/logs", []),
        ("/", "/logs", []),
    ],
)
def test_only_what_is_named_as_ours_is_removed(run_dir: str, log_dir: str, paths: list[str]) -> None:
    assert directories(replace(node("a", 0), run_dir=run_dir, log_dir=log_dir), RUN) == paths


def test_an_identifier_that_leads_elsewhere_removes_nothing() -> None:
    for strange in ("..", "../x", "a b", "", "$(id)"):
        assert directories(replace(node("a", 0), run_dir=f"/h/runs/{strange}"), strange) == []
