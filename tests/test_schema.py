"""What we print as JSON satisfies the schema files that the documentation gives to its readers."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from clusterkit.between import VoteEntry
from clusterkit.errors import CommandFailed, FleetError, InputError, Interrupted, Unreachable
from clusterkit.fleet import Answers
from clusterkit.preflight import Finding, Reading
from clusterkit.prepare import ChecksFailed
from clusterkit.proving import Proofs, Result
from clusterkit.remote.protocol import Result as Ran
from clusterkit.report import answers, preflight, problems
from clusterkit.report import stop as stop_report
from clusterkit.runs.events import Event
from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.runs.status import Observed, document
from clusterkit.runs.watch import restarted
from clusterkit.steps import Fleet, Verdict
from clusterkit.stop import Stopped, StopResult
from tests.schemas import FOLDER, validate

NODE = NodeRecord("gpu1", 0, "10.0.0.1", (0, 1), "python3", "/r", "/w", "/l", {})
RECORD = RunRecord("20260101-000000-abcd", "inventory.ini", "train.py", (), 0.0, (NODE,))


def test_every_schema_file_is_a_schema_and_is_named_in_the_page() -> None:
    page = (Path(FOLDER).parent / "json.md").read_text()
    for path in FOLDER.glob("*.json"):
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))
        assert f"schema/{path.name}" in page


def test_a_status_that_nobody_answered() -> None:
    validate("status", document(RECORD, {"gpu1": Observed(None, "timed out")}))


def test_a_status_with_a_root() -> None:
    cause = {"kind": "rank", "rank": 1, "alias": "gpu1", "exit_code": 7, "signal": None}
    ranks = [{"rank": 1, "exit_code": 7, "signal": None, "bytes": 3, "tail": "a\nb", "log": "/l/workerlog.1"}]
    decision = {"phase": "done", "outcome": "failed", "cause": cause}
    state = {"state": "ended", "started_at": 1.0, "ended_at": 2.0, "launcher_exit": 241, "ranks": ranks}
    status = document(RECORD, {"gpu1": Observed({**state, "node_rank": 0, "decision": decision})})
    assert status["root"]["lines"] == ["a", "b"]
    validate("status", status)
    more: dict[str, object] = {"logs": "/x", "incomplete": [], "diagnosis": None}
    validate("launch", json.loads(Event("ended", "r", {**status, **more}).as_json()))


@pytest.mark.parametrize(
    "event",
    [
        Event("staged", "r", {"host": "gpu1", "received_bytes": 3}),
        Event("started", "r", {"host": "gpu1", "node_rank": 0}),
        Event("joined", "r", {"host": "gpu1", "ranks": [0]}),
        Event("line", "r", {"host": "gpu1", "rank": 0, "attempt": 0, "line": "x", "written_at": None}),
        Event("restarted", "r", restarted(1, {"kind": "rank", "rank": 3, "alias": "gpu1", "exit_code": 7})),
        Event("notice", "r", {"text": "x"}),
    ],
)
def test_events(event: Event) -> None:
    validate("launch", json.loads(event.as_json()))


def test_an_event_without_its_keys_is_refused() -> None:
    with pytest.raises(jsonschema.ValidationError, match="received_bytes"):
        validate("launch", json.loads(Event("staged", "r", {"host": "gpu1"}).as_json()))


def test_errors() -> None:
    unreachable = Unreachable("gpu1", "tcp", "gpu1: refused", "start sshd")
    fleet = FleetError({"gpu1": unreachable, "gpu2": CommandFailed("gpu2", "x")}, "staging")
    for error in (InputError("a", "b"), unreachable, fleet, Interrupted(2, ["gpu1"])):
        validate("error", problems.document(error))
    assert problems.document(fleet)["exit_code"] == 4


def test_checks_that_forbid_a_start_are_in_the_document() -> None:
    low = Verdict("gpu1", "disk space", "failed", {"free": 1}, {"free": 0}, ("free",), "low", "make room")
    written = problems.document(ChecksFailed([low]))
    validate("error", written)
    hosts = written["hosts"]
    assert isinstance(hosts, dict)
    assert hosts["gpu1"]["checks"][0]["name"] == "disk space"
    assert hosts["gpu1"]["error"] == "low"


def test_stop_and_exec() -> None:
    error = Unreachable("gpu2", "tcp", "refused")
    validate(
        "stop", stop_report.document(StopResult("r", {"gpu1": Stopped("running", (4,), ())}, {"gpu2": error}))
    )
    validate("exec", answers.document(Answers({"gpu1": Ran(1, b"\xff", b"")}, {"gpu2": error})))


def test_preflight() -> None:
    verdict = Verdict(
        "gpu1", "disk space", "warning", {"free": "at least 1"}, {"free": 0.5}, ("free",), "low", "make room"
    )
    reading = Reading(Fleet({}, {}), (verdict,), {"gpu2": Unreachable("gpu2", "tcp", "refused")})
    found = Finding("connect", "failed", "gpu1", "gpu3", "port 29400: timed out (dropped)")
    vote = VoteEntry("driver", "550.90.07", {"gpu3": "535.104.05"}, "warning")
    result = Result(reading, {}, Proofs((found,), (vote,)), 1.0)
    written = preflight.document(result, strict=False)
    validate("preflight", written)
    assert (written["exit_code"], written["summary"]) == (4, {"warning": 2, "failed": 1})
