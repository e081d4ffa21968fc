"""What the nodes say, merged: pure, so every situation is a dict in and a dict out."""

from __future__ import annotations

from typing import Any

import pytest

from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.runs.status import Observed, document, ended, exit_code, reason

NODES = tuple(
    NodeRecord(
        f"gpu{n}", n, f"10.0.0.{n}", (2 * n, 2 * n + 1), "python3", "/r", "/w", "/l", {}, clock_offset_s=0.5
    )
    for n in range(3)
)
RECORD = RunRecord("id", "inventory.ini", "train.py", (), 0.0, NODES, status={"state": "staging"})


def state(node: int, name: str = "running", **more: Any) -> dict[str, Any]:
    ranks = [
        {
            "rank": 2 * node + i,
            "local_rank": i,
            "started_at": 11.0,
            "exit_code": None,
            "signal": None,
            "bytes": 100,
            "log": f"/l/workerlog.{i}",
        }
        for i in range(2)
    ]
    decision = {"phase": "start", "outcome": None, "cause": None}
    base = {
        "node_rank": node,
        "state": name,
        "started_at": 10.0,
        "ended_at": None,
        "launcher_exit": None,
        "ranks": ranks,
    }
    return {**base, "clock_offset_s": 0.25 * node, "decision": decision, "peers": [], **more}


def all_running() -> dict[str, Observed]:
    return {f"gpu{n}": Observed(state(n)) for n in range(3)}


def test_all_running() -> None:
    status = document(RECORD, all_running())
    assert status["state"] == "running"
    assert status["exit_code"] is None
    assert [node["state"] for node in status["nodes"]] == ["running"] * 3
    assert [(rank["rank"], rank["host"], rank["local_rank"]) for rank in status["ranks"]] == [
        (0, "gpu0", 0), (1, "gpu0", 1), (2, "gpu1", 0), (3, "gpu1", 1), (4, "gpu2", 0), (5, "gpu2", 1)
    ]  # fmt: skip


def test_times_are_corrected_by_both_offsets() -> None:
    status = document(RECORD, all_running())
    assert status["nodes"][0]["started_at"] == "1970-01-01T00:00:09.500000+00:00"
    assert status["nodes"][2]["started_at"] == "1970-01-01T00:00:09.000000+00:00"


def test_a_host_that_we_cannot_reach_is_unobserved_and_the_run_goes_on() -> None:
    observed = {**all_running(), "gpu1": Observed(state(1), "timed out")}
    status = document(RECORD, observed)
    assert status["nodes"][1]["state"] == "unobserved"
    assert status["state"] == "running"
    assert status["nodes"][1]["error"] == "timed out"


def test_node_zeros_copy_speaks_for_a_host_that_we_cannot_reach() -> None:
    first = state(
        0,
        peers=[
            {"node_rank": 1, "alias": "gpu1", "joined": True, "state": state(1, "ended", launcher_exit=0)}
        ],
    )
    observed = {**all_running(), "gpu0": Observed(first), "gpu1": Observed(None, "timed out")}
    node = document(RECORD, observed)["nodes"][1]
    assert (node["state"], node["exit_code"]) == ("ended", 0)


def done(outcome: str, **cause: Any) -> dict[str, Any]:
    return {"phase": "done", "outcome": outcome, "cause": cause or None}


def test_the_failing_rank_is_the_root_with_its_last_lines() -> None:
    decision = done("failed", kind="rank", rank=3, alias="gpu1", node_rank=1, exit_code=7, signal=None)
    failing = state(1, "ended", decision=decision)
    failing["ranks"][1].update(exit_code=7, tail="a\nb\n")
    observed = {
        "gpu0": Observed(state(0, "ended", decision=decision)),
        "gpu1": Observed(failing),
        "gpu2": Observed(state(2, "ended")),
    }
    status = document(RECORD, observed)
    assert (status["state"], status["exit_code"], status["cause"]) == ("failed", 7, "rank")
    assert status["root"] == {"rank": 3, "host": "gpu1", "exit_code": 7, "signal": None, "lines": ["a", "b"]}
    assert status["reason"] == "rank 3 on gpu1 exited with 7"


def test_a_lost_node_is_named_and_the_exit_code_is_four() -> None:
    decision = done("lost", kind="lost", alias="gpu2", node_rank=2, detail="not heard for 20 s")
    observed = {
        "gpu0": Observed(state(0, "ended", decision=decision)),
        "gpu1": Observed(state(1, "ended")),
        "gpu2": Observed(state(2), "timed out"),
    }
    status = document(RECORD, observed)
    assert (status["state"], status["exit_code"], status["cause"]) == ("lost", 4, "node")
    assert status["nodes"][2]["state"] == "lost"
    assert "gpu2 was lost: not heard for 20 s" in status["reason"]
    assert ended(observed, RECORD)


def test_a_run_is_not_over_while_a_node_that_we_see_still_stops() -> None:
    decision = done("failed", kind="rank", rank=3, alias="gpu1", exit_code=1)
    observed = {**all_running(), "gpu0": Observed(state(0, "ended", decision=decision))}
    assert not ended(observed, RECORD)


def test_without_a_living_supervisor_the_run_is_lost() -> None:
    observed = {f"gpu{n}": Observed(state(n, supervisor="dead")) for n in range(3)}
    status = document(RECORD, observed)
    assert (status["state"], status["exit_code"]) == ("lost", 4)
    assert "supervisor on gpu0 died" in status["reason"]


def test_a_node_lost_with_its_supervisor() -> None:
    """For node 0 the node fell silent; its host answers us, and says why."""
    decision = done("lost", kind="lost", alias="gpu1", node_rank=1, detail="node 0 has heard nothing from it")
    observed = {
        "gpu0": Observed(state(0, "ended", decision=decision)),
        "gpu1": Observed(state(1, supervisor="dead")),
        "gpu2": Observed(state(2, "ended", decision=decision)),
    }
    status = document(RECORD, observed)
    assert (status["state"], status["exit_code"], status["cause"]) == ("lost", 4, "node")
    assert status["reason"] == "the supervisor on gpu1 died: killed, or the host was restarted"
    assert [node["state"] for node in status["nodes"]] == ["ended", "lost", "ended"]


def test_a_dead_supervisor_before_node_0_has_noticed() -> None:
    observed = {**all_running(), "gpu1": Observed(state(1, supervisor="dead"))}
    status = document(RECORD, observed)
    assert (status["state"], status["cause"]) == ("running", None)
    assert [node["state"] for node in status["nodes"]] == ["running", "lost", "running"]


def test_what_the_launcher_said_stands_apart_from_the_reason() -> None:
    cause = {"kind": "launcher", "alias": "gpu1", "detail": "it exited with 1\nTraceback\nValueError: no"}
    status = document(RECORD, {"gpu0": Observed(state(0, "ended", decision=done("failed", **cause)))})
    assert status["reason"] == "the launcher on gpu1 failed: it exited with 1"
    assert status["said"] == {"host": "gpu1", "lines": ["Traceback", "ValueError: no"]}


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        ({"kind": "rank", "exit_code": 7, "signal": None}, 7),
        ({"kind": "rank", "exit_code": None, "signal": 9}, 137),
        ({"kind": "lost"}, 4),
        ({"kind": "join"}, 1),
        ({"kind": "world size"}, 1),
        ({"kind": "launcher"}, 1),
        ({"kind": "user", "signal": 2}, 130),
        ({"kind": "user", "signal": 15}, 143),
        ({"kind": "user"}, 130),
        ({"kind": "stop"}, 143),
        (None, 1),
    ],
)
def test_exit_codes(cause: dict[str, Any] | None, code: int) -> None:
    assert exit_code("failed", cause) == code


def test_success_is_zero() -> None:
    assert exit_code("succeeded", None) == 0


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (
            {"kind": "rank", "rank": 5, "alias": "gpu2", "signal": 9},
            "rank 5 on gpu2 was killed by signal 9 (SIGKILL, often for lack of memory: see `dmesg` there)",
        ),
        (
            {"kind": "join", "detail": "gpu2 has not joined"},
            "not all nodes joined in time: gpu2 has not joined",
        ),
        ({"kind": "stop"}, "stopped by `clusterkit stop`"),
        (
            {"kind": "launcher", "alias": "gpu1", "detail": "killed by signal 9"},
            "the launcher on gpu1 failed: killed by signal 9",
        ),
    ],
)
def test_reasons(cause: dict[str, Any], sentence: str) -> None:
    assert reason(cause) == sentence
