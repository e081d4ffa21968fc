"""`clusterkit diagnose` as its user runs it, on recorded runs: no host of theirs can be reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from clusterkit.diagnose import in_short
from clusterkit.diagnosis import rules
from clusterkit.report.launch import LaunchReport
from clusterkit.report.terminal import Words
from clusterkit.runs.events import Event
from clusterkit.runs.record import RunRecord, RunStore
from clusterkit.tables import load
from tests.diagnosis.runs import FOLLOWED, RUN_ID, failed, rank_failed
from tests.schemas import validate

LOG = "step 1\nTraceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'requests'\n"


@dataclass(frozen=True)
class Project:
    """A folder with a home of its own, in which runs are recorded."""

    folder: Path
    store: RunStore

    def save(self, record: RunRecord, **logs: str) -> None:
        """Record the run; `rank3="text"` gathers a log."""
        self.store.save(record)
        for name, said in logs.items():
            self.store.log(record.run_id, int(name.removeprefix("rank"))).write_text(said)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "LANG": "C.UTF-8"}
        ended = subprocess.run(
            [sys.executable, "-m", "clusterkit", *arguments],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, RunStore(tmp_path / "home/.local/state/clusterkit/runs"))


def test_a_failed_run_is_explained_without_its_hosts(project: Project) -> None:
    project.save(rank_failed(3), rank3=LOG, rank0=FOLLOWED)
    code, out, err = project.run("diagnose", "--offline")
    assert (code, err) == (0, "")
    assert out.startswith(f"run {RUN_ID} failed: rank 3 on gpu02 exited with 1\n")
    assert "missing-module: the Python of gpu02 has no module requests." in out
    assert "  ModuleNotFoundError: No module named 'requests'" in out


def test_the_same_as_json(project: Project) -> None:
    project.save(rank_failed(3), rank3=LOG)
    code, out, _ = project.run("diagnose", "k3fz", "--offline", "--json")
    document = json.loads(out)
    validate("diagnose", document)
    assert (code, document["exit_code"], document["known"][0]["rule"]) == (0, 0, "missing-module")


def test_hosts_that_do_not_answer_are_named_and_the_rest_is_explained(project: Project) -> None:
    project.save(rank_failed(3), rank3=LOG)
    code, out, _ = project.run("diagnose", "--json")
    document = json.loads(out)
    assert (code, document["exit_code"]) == (4, 4)
    assert document["known"][0]["rule"] == "missing-module"
    assert sorted(document["away"]) == ["gpu01", "gpu02", "gpu03"]
    assert all("refused" in words for words in document["away"].values())


def test_a_failure_that_no_rule_knows(project: Project) -> None:
    project.save(rank_failed(3), rank3="ValueError: the loss is not a number\n")
    code, out, _ = project.run("diagnose", "--offline")
    assert code == 1
    assert "this is no failure that clusterkit knows" in out
    assert "  ValueError: the loss is not a number" in out


def test_a_site_s_rule(project: Project) -> None:
    project.save(rank_failed(3), rank3="ValueError: the loss is not a number\n")
    (project.folder / "clusterkit.toml").write_text('diagnoses = "own.toml"\n')
    rule = "[nan]\nwhere = ['rank']\npatterns = ['loss is not a number']\nmeaning = 'Bad data on {host}.'\n"
    (project.folder / "own.toml").write_text(rule + "cure = 'clip'\nsamples = ['the loss is not a number']\n")
    code, out, _ = project.run("diagnose", "--offline")
    assert (code, "nan: Bad data on gpu02." in out, "→ clip" in out) == (0, True, True)
    (project.folder / "own.toml").write_text(rule)
    code, _, err = project.run("diagnose", "--offline")
    assert (code, "own.toml: nan.cure cannot be used" in err) == (2, True)


def test_runs_that_did_not_fail_and_runs_that_are_not_there(project: Project) -> None:
    code, _, err = project.run("diagnose")
    assert (code, "no run is recorded" in err) == (2, True)
    succeeded = replace(rank_failed(3), status={"state": "succeeded"})
    project.save(succeeded)
    assert project.run("diagnose") == (0, f"run {RUN_ID} succeeded: nothing to explain\n", "")
    code, _, err = project.run("diagnose", "nosuch")
    assert (code, "no run `nosuch` is recorded" in err) == (2, True)


def test_a_run_whose_logs_are_gone(project: Project) -> None:
    project.save(rank_failed(3, tail="MemoryError\n"))
    code, out, _ = project.run("diagnose")
    assert code == 4
    assert "host-memory: gpu02 gave rank 3 no more memory" in out
    assert "not asked: gpu" in out


def test_a_run_that_never_started_needs_no_host(project: Project) -> None:
    """Nothing of it is on the hosts; the record says why."""
    record = failed({}, {"kind": "gate", "alias": "gpu01", "node_rank": 0, "rank": None})
    nodes = [{**node, "started_at": None, "ended_at": None} for node in record.status["nodes"]]
    why = "gpu03: could not reach node 0 (gpu01) at 10.0.0.11:29400 for 30 s: timed out"
    project.save(replace(record, status={**record.status, "nodes": nodes, "reason": why}))
    code, out, _ = project.run("diagnose", "--json")
    document = json.loads(out)
    assert (code, document["away"]) == (0, {})
    assert document["known"][0]["rule"] == "node-0-unreachable"


def test_a_launch_ends_with_what_is_plain(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The end of a followed run, as the launch shows it: from the logs here, no host is asked."""
    for log, words in (
        (LOG, "diagnosis (missing-module): the Python of gpu02 has no module requests."),
        ("ValueError: nan\n", f"`clusterkit diagnose {RUN_ID}` looks for the reason"),
    ):
        record = rank_failed(3)
        project.save(record, rank3=log)
        found = in_short(record, project.store, rules.load(), load())
        data = {**record.status, "logs": "/l", "incomplete": [], "diagnosis": found}
        LaunchReport(Words(), quiet=True).show(Event("ended", RUN_ID, data))
        shown = capsys.readouterr().err.splitlines()
        assert any(line.startswith(words) for line in shown[:-1])
        assert shown[-1].endswith("rank 3 on gpu02 exited with 1")
