"""What the benchmark of preflight says about its peers; it measures nothing here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.bench.preflight_speed import OWN, Run, first_run, first_runs, ratios, run

SELF = [sys.executable, "-c"]


def test_each_peer_has_its_ratio_and_budget() -> None:
    runs = {OWN: Run(2.0), "ansible": Run(50.0), "pyinfra": Run(7.0)}
    assert ratios(runs) == [
        "  ansible / clusterkit = 25.0 (budget 20)",
        "  pyinfra / clusterkit = 3.5 (budget 3)",
    ]


def test_a_peer_that_failed_gets_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    failed = run([*SELF, "print('no such module'); raise SystemExit(2)"], dict(os.environ))
    assert "no such module" in capsys.readouterr().out
    first, second = ratios({OWN: Run(2.0), "ansible": failed, "pyinfra": Run(problem="not installed")})
    assert first.startswith("  ansible / clusterkit = no ratio (budget 20): ansible failed (exit code 2, ")
    assert second == "  pyinfra / clusterkit = no ratio (budget 3): pyinfra not installed"


def test_without_our_own_time_there_is_no_ratio() -> None:
    lines = ratios({OWN: Run(1.0, "failed"), "ansible": Run(50.0), "pyinfra": Run(7.0)})
    assert all(line.endswith(": clusterkit failed") and "no ratio" in line for line in lines)


def test_a_peer_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.bench.preflight_speed.path", lambda: str(tmp_path))
    commands = first_runs()
    assert (commands["ansible"], commands["pyinfra"]) == ([], [])
    assert first_run(1, tmp_path, commands["pyinfra"]).line("pyinfra") == "  pyinfra: not installed"
