"""Proofs put together: what a pending change excuses, and what the exit code follows from."""

from __future__ import annotations

from dataclasses import replace

from clusterkit.between.connections import NAME
from clusterkit.between.vote import VoteEntry
from clusterkit.errors import HostError, Unreachable
from clusterkit.preflight import Finding, Reading
from clusterkit.proving import Proofs, Result, _about, _excused
from clusterkit.steps import Fleet, Verdict
from clusterkit.steps.firewall import Firewall

CLOSED = Reading(Fleet({}, {}), (Verdict("gpu2", Firewall.name, "pending"),), {})
OPEN = Reading(Fleet({}, {}), (Verdict("gpu2", Firewall.name, "ok"),), {})
FAILED = Finding(NAME, "failed", "gpu1", "gpu2", "dropped", "open it")


def test_a_connection_that_a_pending_change_opens_is_pending() -> None:
    assert _excused(FAILED, CLOSED).status == "pending"
    assert "pending firewall change" in _excused(FAILED, CLOSED).hint


def test_nothing_else_is_excused() -> None:
    assert _excused(FAILED, OPEN) == FAILED
    elsewhere = Finding(NAME, "failed", "gpu1", "gpu3", "dropped")
    assert _excused(elsewhere, CLOSED) == elsewhere
    path = Finding("path", "failed", "gpu1", "gpu2", "black hole")
    assert _excused(path, CLOSED) == path


def test_the_worst_of_everything_is_the_exit_code() -> None:
    gone = {"gpu9": Unreachable("gpu9", "tcp", "refused")}
    assert Result(OPEN).exit_code(strict=False) == 0
    assert Result(CLOSED).exit_code(strict=False) == 3
    assert Result(CLOSED, proofs=Proofs((FAILED,))).exit_code(strict=False) == 1
    assert Result(Reading(Fleet({}, {}), CLOSED.verdicts, gone)).exit_code(strict=False) == 4
    odd = Proofs(votes=(VoteEntry("driver", "2", {"gpu3": "1"}, "warning"),))
    assert Result(OPEN, proofs=odd).exit_code(strict=False) == 0
    assert Result(OPEN, proofs=odd).exit_code(strict=True) == 1
    assert Result(Reading(Fleet({}, {}), (), {}, "no devices")).exit_code(strict=False) == 1
    unable = {"gpu3": HostError("gpu3", "its GPUs could not be listed")}
    assert Result(Reading(Fleet({}, {}), (), {}, unable=unable)).exit_code(strict=False) == 1


def test_all_hosts_vote_and_those_that_are_meant_are_named() -> None:
    odd = VoteEntry("driver", "550", {"gpu3": "535", "gpu9": "470"}, "warning", "install one")
    assert _about(odd, ("gpu1", "gpu3")) == replace(odd, odd={"gpu3": "535"})
    assert _about(odd, ("gpu1", "gpu2")) == VoteEntry("driver", "550")
    tie = VoteEntry("driver", None, {"gpu1": "535", "gpu9": "470"}, "warning")
    assert _about(tie, ("gpu1",)) == tie
    same = VoteEntry("machine id", None, {"gpu1": "a", "gpu9": "a"}, "failed", unique=True)
    assert _about(same, ("gpu9",)) == same
