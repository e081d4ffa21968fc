"""What `state --live` adds: the age and the end of each log, and the GPUs, whatever nvidia-smi does."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.node import glance


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only program on the PATH besides the shell's own words."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "nvidia-smi"


def answer(smi: Path, script: str) -> None:
    smi.write_text(f"#!/bin/sh\n{script}\n")
    smi.chmod(0o755)


def test_the_use_of_each_gpu(smi: Path) -> None:
    answer(smi, 'echo "0, 97, 70000, 81559"; echo "1, [N/A], 4, 81559"; echo "a warning"')
    assert glance.gpus() == [
        {"index": 0, "used_percent": 97, "memory_used_mib": 70000, "memory_mib": 81559},
        {"index": 1, "used_percent": None, "memory_used_mib": 4, "memory_mib": 81559},
    ]


def test_no_gpu_a_broken_driver_and_one_that_never_answers(
    smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert glance.gpus() is None
    answer(smi, "echo '0, 1, 2, 3'; exit 18")
    assert glance.gpus() is None
    monkeypatch.setattr(glance, "GPU_LIMIT", 0.2)
    answer(smi, "exec /bin/sleep 60")
    assert glance.gpus() is None


def test_logs_by_rank(tmp_path: Path, smi: Path) -> None:
    (tmp_path / "workerlog.0").write_text("x" * 10000 + "\nstep 3/9\n")
    ranks = [{"rank": rank, "log": str(tmp_path / f"workerlog.{rank}")} for rank in (0, 1)]
    seen = glance.of({"ranks": ranks})
    assert seen["gpus"] is None
    assert seen["logs"]["1"] == {"age_s": None, "tail": ""}
    first = seen["logs"]["0"]
    assert first["tail"].endswith("\nstep 3/9\n")
    assert len(first["tail"]) <= glance.TAIL
    assert 0 <= first["age_s"] < 600
