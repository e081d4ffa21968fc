"""Which spare takes whose place, and when there is no next attempt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clusterkit import tables
from clusterkit.errors import FleetError, Interrupted, NodeError, TopologyError, Unreachable
from clusterkit.inventory.model import Settings
from clusterkit.planning.attempts import Attempts
from clusterkit.planning.roles import Role
from clusterkit.prepare import ChecksFailed, Order, Prepared
from clusterkit.probes.gpu_errors import GPU_ERRORS
from clusterkit.replacing import NextAttempt, Reserve, broken_gpus, gone, plan_next
from clusterkit.runs.events import Event
from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.steps import Verdict

HOSTS = ("gpu0", "gpu1", "gpu2")
NODES = tuple(
    NodeRecord(host, number, f"10.0.0.{number}", (number,), "python3", "/r", "/w", "/r/logs", {})
    for number, host in enumerate(HOSTS)
)
RECORD = RunRecord("run-1", "i.ini", "train.py", (), 0.0, NODES)
LOST = {"kind": "lost", "alias": "gpu1", "detail": "heard nothing\nand more"}
DECIDED = {"attempt": 0, "phase": "done", "outcome": "lost", "cause": LOST, "history": []}


def settings(*names: str) -> tuple[Settings, ...]:
    return tuple(Settings(alias=name, address=name) for name in names)


def status(**states: str) -> dict[str, Any]:
    """A run that was lost; each host that is named here stands so, the others have ended."""
    nodes = [{"host": host, "state": states.get(host, "ended"), "error": ""} for host in HOSTS]
    return {"state": "lost", "attempt": 0, "nodes": nodes}


def plan_of(order: Order, counts: Mapping[str, int]) -> Prepared:
    """What `prepare` would have made of this order, as far as it matters here."""
    nodes = [
        SimpleNamespace(alias=s.alias, ranks=tuple(range(counts.get(s.alias, 1)))) for s in order.members
    ]
    return cast(Prepared, SimpleNamespace(plan=SimpleNamespace(nodes=nodes), order=order))


class Preparing:
    """Plays `prepare`: raises what it was told about a host, as long as that host is a member."""

    def __init__(self, errors: Mapping[str, Exception], counts: Mapping[str, int]) -> None:
        self.errors = errors
        self.counts = counts

    def __call__(self, order: Order, run_id: str) -> Prepared:
        assert run_id == "run-1"
        for member in order.members:
            if member.alias in self.errors:
                raise self.errors[member.alias]
        return plan_of(order, self.counts)


def next_attempt(
    now: dict[str, Any],
    errors: Mapping[str, Exception] | None = None,
    counts: Mapping[str, int] | None = None,
    spares: tuple[str, ...] = ("spare0", "spare1"),
    decided: Mapping[str, Any] = DECIDED,
    most: int = 2,
    roles: Mapping[str, Role] | None = None,
) -> tuple[NextAttempt | None, list[str]]:
    """The next attempt, and what was said on the way to it."""
    attempts = Attempts(most)
    order = Order(Path("i.ini"), settings(*HOSTS), "train.py", (), Path("/"), attempts=attempts, roles=roles)
    reserve = Reserve(order, settings(*spares), Preparing(errors or {}, counts or {}))
    events: list[Event] = []
    found = plan_next(RECORD, plan_of(order, {}), now, decided, reserve, events.append)
    return found, [str(event.data["text"]) for event in events]


def members(found: NextAttempt | None) -> list[str]:
    assert found is not None
    return [each.alias for each in found.reserve.order.members]


def test_a_spare_takes_the_place_of_the_lost_host() -> None:
    found, _ = next_attempt(status(gpu1="lost"))
    assert members(found) == ["gpu0", "spare0", "gpu2"]
    assert found is not None
    assert found.stand_ins == {"gpu1": "spare0"}
    assert [spare.alias for spare in found.reserve.spares] == ["spare1"]
    begun = found.reserve.order.attempts
    assert (begun.first, begun.max_restarts) == (1, 2)
    assert [(each["attempt"], each["outcome"], each["cause"]["detail"]) for each in begun.history] == [
        (0, "lost", "heard nothing")
    ]


def test_a_spare_takes_over_the_role_of_the_host_in_whose_place_it_is() -> None:
    roles = {"gpu0": Role(servers=1), "gpu1": Role(servers=1, trainers=1), "gpu2": Role(trainers=2)}
    found, _ = next_attempt(status(gpu1="lost"), roles=roles)
    assert found is not None
    assert found.reserve.order.roles == {
        "gpu0": roles["gpu0"],
        "spare0": roles["gpu1"],
        "gpu2": roles["gpu2"],
    }


def test_every_host_that_is_gone_is_replaced() -> None:
    now = status(gpu1="lost")
    now["nodes"][0]["error"] = "no answer"
    assert members(next_attempt(now)[0]) == ["spare0", "spare1", "gpu2"]


BAD = {
    "does not answer": FleetError({"spare0": Unreachable("spare0", "tcp", "no answer")}, "reading"),
    "fails a check": ChecksFailed([Verdict("spare0", "ports", "failed", message="closed")]),
    "does not fit in": NodeError("spare0", "it has no GPU"),
    "makes no topology": TopologyError("no address in the network of the others"),
}


@pytest.mark.parametrize("why", BAD)
def test_a_spare_that_cannot_take_part_is_left_out_and_named(why: str) -> None:
    found, said = next_attempt(status(gpu1="lost"), {"spare0": BAD[why]})
    assert members(found) == ["gpu0", "spare1", "gpu2"]
    assert any(text.startswith("spare spare0") and text.endswith("it is left out") for text in said), said


def test_a_spare_with_other_ranks_would_change_the_rank_table() -> None:
    found, said = next_attempt(status(gpu1="lost"), counts={"spare0": 8})
    assert members(found) == ["gpu0", "spare1", "gpu2"]
    assert "spare spare0: has 8 ranks, and gpu1, which it should replace, has 1; it is left out" in said


def test_without_a_spare_that_can_take_part_there_is_no_next_attempt() -> None:
    found, said = next_attempt(status(gpu1="lost"), {"spare0": BAD["fails a check"]}, spares=("spare0",))
    assert (found, said[-1]) == (None, "no spare is left for gpu1")


def test_a_problem_of_another_host_is_not_the_spares_fault() -> None:
    other = FleetError({"gpu2": Unreachable("gpu2", "tcp", "no answer")}, "reading the hosts")
    found, said = next_attempt(status(gpu1="lost"), {"gpu2": other})
    assert found is None
    assert said[-1].startswith("attempt 1 cannot be planned: ")


def test_an_interrupt_is_not_taken_for_a_bad_spare() -> None:
    with pytest.raises(Interrupted):
        next_attempt(status(gpu1="lost"), {"spare0": Interrupted(2)})


@pytest.mark.parametrize("state", ["failed", "stopped", "succeeded"])
def test_only_a_lost_host_is_replaced(state: str) -> None:
    assert gone({**status(gpu1="lost"), "state": state}, DECIDED) == []


def test_no_more_attempts_than_were_asked_for() -> None:
    assert next_attempt({**status(gpu1="lost"), "attempt": 2})[0] is None


def test_a_host_with_a_broken_gpu_is_replaced_though_it_answers() -> None:
    decided = {**DECIDED, "cause": {"kind": "gpu", "alias": "gpu2", "detail": "Xid 79"}}
    assert members(next_attempt(status(), decided=decided)[0]) == ["gpu0", "gpu1", "spare0"]


def test_only_errors_that_no_job_survives_make_a_gpu_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    def error(code: int, **more: Any) -> SimpleNamespace:
        known = {"code": code, "bus": "13:00", "text": "x", "switch": False, "fatal": False}
        return SimpleNamespace(**{**known, **more})

    known = {"gpu1": [error(13), error(79)], "gpu2": [error(79, switch=True)]}

    def gather(_remote: object, each: Settings, _probes: object, timeout: float) -> dict[object, Any]:
        if each.alias == "gpu0":
            raise Unreachable("gpu0", "tcp", "no answer")
        return {GPU_ERRORS: known[each.alias]}

    monkeypatch.setattr("clusterkit.replacing.gather", gather)
    remotes = cast(Any, dict.fromkeys(HOSTS))
    found = broken_gpus(RECORD, {each.alias: each for each in settings(*HOSTS)}, remotes, tables.load())
    assert found == {"gpu1": "Xid 79 at PCI 13:00: x"}
