"""The step, the probe and the cases of docs/steps.md are real: they run as printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from clusterkit.facts import Output, Probe
from clusterkit.steps import ALL, judge
from clusterkit.steps.engine import LAUNCH
from tests.steps.fleets import fleet

DOCS = Path(__file__).parent.parent.parent / "docs"
TEXT = (DOCS / "steps.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def run(source: str, **names: Any) -> dict[str, Any]:
    exec(source.replace("from __future__ import annotations", ""), names)
    return names


def test_the_probe() -> None:
    probe = run(blocks("python")[0], Probe=Probe)["UPTIME"]
    case = json.loads(blocks("json")[0])
    assert probe.parse(Output(0, "\n".join(case["stdout"]))) == case["value"]


def test_the_step_and_its_case() -> None:
    step = run(blocks("python")[1])["OpenFiles"]()
    case = json.loads(blocks("json")[1])
    verdict = judge(step, "gpu01", fleet(case))
    shown = {**verdict.as_json(), "status": verdict.status}
    assert {key: shown[key] for key in case["verdict"]} == case["verdict"]
    assert judge(step, "gpu01", fleet({"hosts": {"gpu01": {}}})).status == "ok"


def test_every_check_has_a_line_in_the_table() -> None:
    table = re.findall(r"^\| ([^|]+) \|", (DOCS / "checks-launch.md").read_text(), re.MULTILINE)
    listed = [name for cell in table[1:] for name in cell.split(", ")]
    assert [step.name for step in ALL if LAUNCH in step.tags] == listed
