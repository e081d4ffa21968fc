"""What follows from desired and actual: statuses, second reading, exit codes, votes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from clusterkit.facts import NEEDS_ROOT, Clock, Facts, Output, Probe, interpret
from clusterkit.inventory.model import Settings
from clusterkit.probes.host import HOST, HostFacts
from clusterkit.steps import (
    ALL,
    LAUNCH,
    Fleet,
    Step,
    Verdict,
    check,
    chosen,
    counts,
    exit_code,
    judge,
    judge_all,
    probes,
)
from clusterkit.steps import settled as settle
from clusterkit.steps.engine import (
    AtLeast,
    AtMost,
    Change,
    Requirement,
    Severity,
    State,
    VersionAtLeast,
    undone,
    unseen,
    version_key,
)
from tests.facts.recorded import PROBES, facts
from tests.steps.fleets import fleet, topology

COLOUR: Probe[str] = Probe("colour", "echo red", lambda output: output.stdout.strip())


@dataclass(frozen=True)
class Painted(Step):
    """A step with everything: a fix for `red`, a person for the rest."""

    name = "painted"
    tags = frozenset({"test"})
    probes = (COLOUR,)
    wanted: str = "green"
    bad: Severity = "manual"

    def skip(self, host: str, fleet: Fleet) -> str:
        return "nothing to paint" if host == "bare" else ""

    def desired(self, host: str, fleet: Fleet) -> State:
        return {"colour": self.wanted, "coats": 2}

    def actual(self, host: str, fleet: Fleet) -> State:
        return {"colour": fleet.facts[host][COLOUR], "coats": 2}

    def fix(self, change: Change) -> list[str]:
        return ["paint it"] if change.actual["colour"] == "red" else []

    def severity(self, change: Change) -> Severity:
        return self.bad

    def hint(self, change: Change) -> str:
        return "call a painter"


def hosts(**colours: Output | str) -> Fleet:
    outputs = {
        alias: said if isinstance(said, Output) else Output(0, said) for alias, said in colours.items()
    }
    return Fleet(
        {alias: Settings(alias, alias, become=True) for alias in colours},
        {
            alias: Facts(alias, interpret(alias, {"colour": said}, [COLOUR]))
            for alias, said in outputs.items()
        },
    )


def verdict(colour: Output | str, step: Step | None = None) -> Verdict:
    return judge(step or Painted(), "a", hosts(a=colour))


def test_ok() -> None:
    found = verdict("green")
    assert (found.status, found.changed_keys, found.message) == ("ok", (), "")
    assert found.desired == found.actual == {"colour": "green", "coats": 2}


def test_a_fix_makes_it_pending() -> None:
    found = verdict("red")
    assert (found.status, found.fix, found.changed_keys) == ("pending", ("paint it",), ("colour",))
    assert found.message == "colour is red, not green"


@dataclass(frozen=True)
class Home(Painted):
    """What the login itself may do."""

    root: bool = False

    def undo(self, host: str, fleet: Fleet) -> list[str]:
        return ["scrape it off"]


@pytest.mark.parametrize(
    ("uid", "become", "may"), [(1000, False, False), (1000, True, True), (0, False, True)]
)
def test_nothing_is_done_as_root_that_the_inventory_does_not_permit(
    uid: int, become: bool, may: bool
) -> None:
    who = HostFacts(uid, uid, "ml", "/home/ml", "a", "6.1", "x86_64", "Debian", "1", "2")
    known = Fleet(
        {"a": Settings("a", "a", become=become)}, {"a": Facts("a", {"colour": "red", HOST.name: who})}
    )
    found = judge(Painted(), "a", known)
    assert (found.status, found.fix) == (("pending", ("paint it",)) if may else ("manual", ()))
    assert ("ansible_become=true" in found.hint) is not may
    assert judge(Home(), "a", known).status == "pending"
    assert undone([Home()], "a", known) == {"painted": ["scrape it off"]}
    (line,) = undone([Home(root=True)], "a", known)["painted"]
    assert (line == "scrape it off") is may
    assert ("ansible_become=true" in line) is not may


@pytest.mark.parametrize("severity", ["manual", "warning", "failed"])
def test_without_a_fix_the_step_says_how_bad_it_is(severity: Severity) -> None:
    found = verdict("blue", Painted(bad=severity))
    assert (found.status, found.fix, found.hint) == (severity, (), "call a painter")


def test_a_failed_probe_is_unknown_with_its_reason() -> None:
    found = verdict(Output(124, ""))
    assert (found.status, found.message) == ("unknown", "colour: no answer within 5 s")
    assert found.hint == "look at a by hand, then try again"


def test_what_only_root_can_read_says_how_to_permit_it() -> None:
    found = verdict(Output(NEEDS_ROOT, ""))
    assert (found.status, found.message) == ("unknown", "colour: only root can read this")
    assert "ansible_become=true" in found.hint
    assert "--ask-become-pass" in found.hint


def test_skipped_with_the_reason() -> None:
    found = judge(Painted(), "bare", hosts(bare=Output(1, "")))
    assert (found.status, found.message) == ("skipped", "nothing to paint")


def test_json_has_the_keys_of_the_schema() -> None:
    assert verdict("red").as_json() == {
        "name": "painted",
        "status": "pending",
        "desired": {"colour": "green", "coats": 2},
        "actual": {"colour": "red", "coats": 2},
        "changed_keys": ["colour"],
        "message": "colour is red, not green",
        "hint": "call a painter",
    }


def test_every_step_on_every_host_in_inventory_order() -> None:
    found = judge_all([Painted(), Painted(wanted="red")], hosts(b="red", a="green"))
    assert [(one.host, one.status) for one in found] == [
        ("b", "pending"),
        ("b", "ok"),
        ("a", "ok"),
        ("a", "manual"),
    ]


def test_hosts_without_facts_are_left_to_whoever_could_not_reach_them() -> None:
    reached = hosts(a="green")
    both = Fleet({**reached.members, "down": Settings("down", "down")}, reached.facts)
    assert [one.host for one in judge_all([Painted()], both)] == ["a"]


def test_the_second_reading_decides() -> None:
    before = judge_all([Painted()], hosts(fixed="red", still="red", good="green", other="blue"))
    after = judge_all([Painted()], hosts(fixed="green", still="red", good="green", other="blue"))
    assert {one.host: one.status for one in settle(before, after)} == {
        "fixed": "changed",
        "still": "failed",
        "good": "ok",
        "other": "manual",
    }


def test_what_was_changed_is_told() -> None:
    (found,) = settle(judge_all([Painted()], hosts(a="red")), judge_all([Painted()], hosts(a="green")))
    assert (found.status, found.changed_keys) == ("changed", ("colour",))
    assert found.message == "colour: red → green"


def test_what_could_not_be_looked_for_is_not_taken_for_gone() -> None:
    @dataclass(frozen=True)
    class Marked(Painted):
        def undo(self, host: str, fleet: Fleet) -> list[str]:
            return ["scrape it off"] if fleet.facts[host][COLOUR] == "green" else []

    known = hosts(seen="green", bare="red", hidden=Output(NEEDS_ROOT, ""))
    said = {host: unseen([Marked()], host, known) for host in known.members}
    assert (said["seen"], said["bare"]) == ({}, {})
    assert "only root can read this" in said["hidden"]["painted"]


@pytest.mark.parametrize(
    ("statuses", "strict", "code"),
    [
        (["ok", "changed", "skipped", "warning"], False, 0),
        (["ok", "warning"], True, 1),
        (["ok", "pending"], False, 3),
        (["pending", "failed"], False, 1),
        (["unknown"], False, 1),
        (["manual"], False, 1),
        ([], True, 0),
    ],
)
def test_exit_codes(statuses: list[Any], strict: bool, code: int) -> None:
    assert exit_code([Verdict("a", "x", status) for status in statuses], strict) == code


def test_counts() -> None:
    assert counts([Verdict("a", "x", "ok"), Verdict("b", "x", "ok"), Verdict("b", "y", "failed")]) == {
        "ok": 2,
        "failed": 1,
    }


@pytest.mark.parametrize(
    ("requirement", "met", "missed", "reads"),
    [
        (AtLeast(1.5), [1.5, 2], [1.4, None], "at least 1.5"),
        (AtMost(0.5), [0.5, 0], [0.6, None], "at most 0.5"),
        (VersionAtLeast("2.3"), ["2.3", "2.3.0", "2.10", "3.0.0rc1"], ["2.2.9", "0.9", None], "2.3 or newer"),
    ],
)
def test_requirements(requirement: Requirement, met: list[Any], missed: list[Any], reads: str) -> None:
    assert all(requirement.met_by(value) for value in met)
    assert not any(requirement.met_by(value) for value in missed)
    assert str(requirement) == reads


def test_versions_compare_number_by_number() -> None:
    assert version_key("2.6.2.post118") == (2, 6, 2)
    assert version_key("3.0.0rc1") == (3, 0)
    assert version_key("2.10") > version_key("2.9")


def colour(facts: Facts) -> str | None:
    return facts.get(COLOUR)


@pytest.mark.parametrize(
    ("colours", "expected"),
    [
        ({"a": "red", "b": "blue", "c": "blue"}, "blue"),
        ({"a": "red", "b": "blue"}, "red"),
        ({"a": Output(124, ""), "b": "blue"}, "blue"),
        ({}, None),
    ],
)
def test_majority(colours: Mapping[str, Any], expected: str | None) -> None:
    assert hosts(**colours).majority(colour) == expected


# --- the steps of launch --------------------------------------------------------------------------------


def test_a_healthy_cluster_passes_every_check() -> None:
    first = facts("gpu01")
    second = facts("gpu02", host="gpu02", network="second-node", name="second-node", python="second-node")
    members = [Settings("gpu01", "gpu01"), Settings("gpu02", "gpu02")]
    planned = topology(["gpu01", "gpu02"], {"gpu01": [0, 1], "gpu02": [0, 1]})
    found = check(members, {"gpu01": first, "gpu02": second}, planned)
    wrong = [one for one in found if one.status not in ("ok", "skipped")]
    assert not wrong
    assert {one.name for one in found if one.status == "ok"} >= {"node address", "paddle", "ports"}
    assert len(found) == 2 * len(chosen(LAUNCH))


def test_what_preflight_could_change_is_pending_and_stops_a_launch() -> None:
    settings = {"image": "registry.example/train:1", "container_runtime": "docker"}
    host = {"settings": settings, "facts": {"container": "docker-without-image-large"}}
    judged = judge_all(chosen(LAUNCH), fleet({"hosts": {"gpu01": host}}))
    assert [one.name for one in judged if one.status == "pending"] == ["image"]
    assert exit_code(judged) == 3


def test_names_are_unique_and_documented() -> None:
    names = [step.name for step in chosen(LAUNCH)]
    assert len(set(names)) == len(names)
    assert all(type(step).__doc__ for step in chosen(LAUNCH))


def test_probes_of_the_steps_are_asked_once() -> None:
    names = [probe.name for probe in probes(chosen(LAUNCH))]
    assert len(names) == len(set(names))
    assert "python" in names


@pytest.mark.parametrize("step", ALL, ids=lambda step: step.name)
def test_desired_and_actual_have_the_same_keys(step: Step) -> None:
    for devices in ({}, {"gpu01": [0, 1]}):
        found = fleet({"hosts": {"gpu01": {}, "gpu02": {}}, "devices": devices})
        if not step.skip("gpu01", found):
            assert set(step.desired("gpu01", found)) == set(step.actual("gpu01", found))


@pytest.mark.parametrize("step", ALL, ids=lambda step: step.name)
def test_a_host_that_answers_nothing_is_unknown_or_skipped_never_a_crash(step: Step) -> None:
    for status in (124, 127, 1):
        silent = dict.fromkeys(PROBES, Output(status, ""))
        found = Fleet(
            {"gpu01": Settings("gpu01", "gpu01")},
            {"gpu01": facts("gpu01", Clock(0, 0), **silent)},
            topology(["gpu01"], {"gpu01": [0]}),
        )
        one = judge(step, "gpu01", found)
        assert one.status in ("ok", "unknown", "skipped", "failed", "warning", "manual")
        assert one.status == "ok" or one.message


def test_without_a_planned_run_what_needs_one_is_skipped() -> None:
    member, read = Settings("gpu01", "gpu01"), {"gpu01": facts("gpu01")}
    planned, found = (check([member], read, plan) for plan in (topology(["gpu01"], {}), None))
    skipped = {one.name for one in found if one.status == "skipped"}
    assert skipped - {one.name for one in planned if one.status == "skipped"} == {"node address", "ports"}
