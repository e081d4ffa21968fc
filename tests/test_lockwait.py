"""Waiting for hosts that are held: for nothing else, not longer than asked, and told once."""

from __future__ import annotations

import pytest

from clusterkit.errors import ClusterkitError, CommandFailed, FleetError, Held, Interrupted
from clusterkit.interrupts import Interrupts
from clusterkit.lockwait import Patience
from clusterkit.prepare import ChecksFailed
from clusterkit.runs.events import Event
from clusterkit.steps import Verdict


def verdict(name: str) -> Verdict:
    return Verdict("gpu01", name, "failed", {}, {}, message="run x of ann@laptop uses GPU 0")


HELD = FleetError({"gpu01": Held("gpu01", "GPU 0 is held by run x")}, "starting")


def patience(limit: float, told: list[Event], times: list[float]) -> Patience:
    return Patience(limit, told.append, pause=lambda: 0.0, clock=lambda: times.pop(0))


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (HELD, True),
        (ChecksFailed([verdict("other runs")]), True),
        (ChecksFailed([verdict("other runs"), verdict("limits")]), False),
        (FleetError({"a": Held("a", ""), "b": CommandFailed("b", "no")}, "starting"), False),
        (ClusterkitError("no"), False),
    ],
)
def test_what_is_waited_for(error: ClusterkitError, waits: bool) -> None:
    told: list[Event] = []
    assert patience(60, told, [0.0, 1.0]).again(error, Interrupts()) is waits
    assert len(told) == waits


def test_no_longer_than_asked_and_told_once() -> None:
    told: list[Event] = []
    waiting = patience(60, told, [0.0, 10.0, 59.0, 60.0])
    assert [waiting.again(HELD, Interrupts()) for _ in range(3)] == [True, True, False]
    (event,) = told
    assert event.data["text"] == ("waiting up to 60 s for hosts that are held: gpu01: GPU 0 is held by run x")
    assert not patience(0, told, [0.0, 0.0]).again(HELD, Interrupts())


def test_an_interrupt_ends_the_wait() -> None:
    interrupts = Interrupts()
    interrupts.count, interrupts.signum = 1, 2
    interrupts.cancel.set()
    with pytest.raises(Interrupted):
        Patience(3600, lambda _: None, pause=lambda: 3600).again(HELD, interrupts)
