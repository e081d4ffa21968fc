"""The step, the probe and the cases of docs/steps.md are real: they run as printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
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


def listing(path: str) -> str:
    """The block under the line that begins with this path."""
    found = re.search(
        rf"^`{re.escape(path)}`[^\n]*\n(?:[^`\n]*`[^\n]*\n)?\n```\w+\n(.*?)```", TEXT, re.M | re.S
    )
    assert found, path
    return found[1]


def test_the_check_is_added_as_printed_and_its_cases_pass(tmp_path: Path) -> None:
    """In a copy of the sources: nothing else than what stands in the document is written."""
    root = DOCS.parent
    for folder in ("clusterkit", "tests/steps", "tests/facts", "tests/cases"):
        shutil.copytree(root / folder, tmp_path / folder)
    step = listing("clusterkit/steps/cores.py")
    (tmp_path / "clusterkit/steps/cores.py").write_text(step)
    cases = tmp_path / "tests/cases/steps/cpu-cores"
    cases.mkdir()
    for name in ("few", "enough"):
        (cases / f"{name}.json").write_text(listing(f"tests/cases/steps/cpu-cores/{name}.json"))
    imported, added = blocks("python")[2].split("\n\n")
    steps = tmp_path / "clusterkit/steps/__init__.py"
    text = steps.read_text()
    after = "    Memory(),\n"
    assert f"add it after\n`{after.strip()}`" in TEXT
    assert text.count(after) == 1
    first = "from clusterkit.steps.disk import"
    text = text.replace(first, f"{imported}\n{first}").replace(after, f"{after}{added}")
    steps.write_text(text)
    chosen = ("tests/steps/test_step_cases.py", "-k", "cpu-cores or belong")
    judged = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
    # Two cases, that there is a good and a bad one, and that no case is without a step.
    assert "4 passed" in judged.stdout


def test_the_example_is_none_of_the_checks_and_as_short_as_it_says() -> None:
    step = run(blocks("python")[1])["CpuCores"]()
    assert step.name not in {each.name for each in ALL}
    code = [line for line in listing("clusterkit/steps/cores.py").splitlines() if line.strip()]
    assert len(code) < 32
    (verdict,) = (judge(step, "gpu01", fleet(json.loads(case))) for case in blocks("json")[1:2])
    assert verdict.status == "warning"


def test_every_check_has_a_line_in_the_table() -> None:
    table = re.findall(r"^\| ([^|]+) \|", (DOCS / "checks-launch.md").read_text(), re.MULTILINE)
    listed = [name for cell in table[1:] for name in cell.split(", ")]
    assert [step.name for step in ALL if LAUNCH in step.tags] == listed
