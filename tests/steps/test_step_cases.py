"""Settings and recorded facts → verdict, one file a case (see tests/steps/fleets.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterkit.steps import ALL, judge
from tests.steps.fleets import fleet

CASES = Path(__file__).parent.parent / "cases" / "steps"
FILES = sorted(CASES.glob("*/*.json"))
STEPS = {step.name.replace(" ", "-"): step for step in ALL}


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}/{file.stem}" for file in FILES])
def test_facts_become_a_verdict(file: Path) -> None:
    case = json.loads(file.read_text())
    found = fleet(case)
    verdict = judge(STEPS[file.parent.name], case.get("on", next(iter(found.members))), found)
    shown = {"status": verdict.status, **verdict.as_json(), "fix": list(verdict.fix)}
    assert {key: shown[key] for key in case["verdict"]} == case["verdict"]


@pytest.mark.parametrize("name", STEPS)
def test_every_step_has_a_good_and_a_bad_case(name: str) -> None:
    statuses = {json.loads(file.read_text())["verdict"]["status"] for file in (CASES / name).glob("*.json")}
    assert "ok" in statuses
    assert statuses & {"failed", "warning", "pending", "manual"}


def test_cases_belong_to_a_step() -> None:
    assert {file.parent.name for file in FILES} <= set(STEPS)
