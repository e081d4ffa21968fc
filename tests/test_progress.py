"""The step seen last, out of lines as Paddle's suites print them, and where it is shown."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from typing import Any

import pytest

from clusterkit.report.screen import Screen
from clusterkit.report.status import status_lines, step_of
from clusterkit.runs.progress import Progress, added, of, of_gathered
from clusterkit.runs.status import document
from tests.schemas import validate
from tests.test_status import RECORD, all_running


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "[2026/11/30 10:00:00] ppocr INFO: epoch: [3/500], global_step: 1210, lr: 0.001000, acc: 0.0, "
            "avg_reader_cost: 0.00029 s, avg_batch_cost: 0.21 s, avg_samples: 8.0, ips: 37.8 samples/s",
            Progress(1210, None, 3),
        ),
        (
            "[11/30 10:00:00] ppdet.engine INFO: Epoch: [0] [ 20/1000] learning_rate: 0.001 loss: 3.41",
            Progress(20, 1000, 0),
        ),
        (
            "[2026/11/30] ppcls INFO: [Train][Epoch 1/120][Iter: 10/5004]lr(LinearWarmup): 0.1, top1: 0.00",
            Progress(10, 5004, 1),
        ),
        (
            "2026-11-30 [INFO]\t[TRAIN] epoch: 2, iter: 140/80000, loss: 1.0532, lr: 0.009, batch_cost: 0.2",
            Progress(140, 80000, 2),
        ),
        (
            "[2026-11-30,561] [INFO] - loss: 7.1, learning_rate: 1e-05, global_step: 30, "
            "interval_runtime: 2.5, interval_steps_per_second: 3.9, progress_or_epoch: 0.01",
            Progress(30, None, 0),
        ),
        ("global step 40, epoch: 1, batch: 40, loss: 0.58, speed: 5.2 step/s", Progress(40, None, 1)),
        ("step 10/938 [..........] - loss: 0.4 - acc: 0.9 - 20ms/step", Progress(10, 938, None)),
        (" 12%|█▏        | 120/1000 [00:10<01:12, 12.2it/s]", Progress(120, 1000, None)),
        ("rank 0/4 step 60 loss 0.0139", Progress(60, None, None)),
        ("Step=7", Progress(7, None, None)),
        ("warmup_steps=100 batch_size: 8 max_steps: 5", Progress()),
        ("iter 0.35 s", Progress()),
        ("nothing to see", Progress()),
    ],
)
def test_lines_of_training_logs(line: str, expected: Progress) -> None:
    assert of(f"step 1 before\n{line}\nand words after it\n") == (
        expected if expected != Progress() else Progress(1)
    )


def test_a_progress_bar_without_a_newline() -> None:
    assert of("step 1/9\rstep 2/9\rstep 3/9").step == 3
    assert of("") == Progress()


def live() -> dict[str, Any]:
    observed = all_running()
    states: dict[str, dict[str, Any]] = {host: dict(seen.state or {}) for host, seen in observed.items()}
    gpu = {"index": 0, "used_percent": 97, "memory_used_mib": 70000, "memory_mib": 81559}
    logs = {"0": {"age_s": 3.0, "tail": "epoch 1 step 12/40\n"}, "1": {"age_s": None, "tail": ""}}
    states["gpu0"]["live"] = {"logs": logs, "gpus": [gpu]}
    states["gpu2"]["ranks"][1]["started_at"] = None
    return added(document(RECORD, observed), states)


def test_a_running_run() -> None:
    status = live()
    validate("status", status)
    first = status["ranks"][0]
    assert (first["step"], first["steps"], first["epoch"], first["line_age_s"]) == (12, 40, 1, 3.0)
    assert [rank["joined"] for rank in status["ranks"]] == [True] * 5 + [False]
    assert [bool(node["gpus"]) for node in status["nodes"]] == [True, False, False]
    shown = "\n".join(status_lines(status))
    assert "0     gpu0  yes     epoch 1 step 12/40  100        3 s ago" in shown
    assert "gpu0: GPU 0 97 %, 70000 of 81559 MiB" in shown
    assert "JOINED" not in "\n".join(status_lines(document(RECORD, all_running())))


def test_a_run_that_is_over() -> None:
    status = of_gathered(document(RECORD, all_running()), {0: "step 9\n"})
    validate("status", status)
    assert step_of(status["ranks"][0]) == "step 9"
    assert status["ranks"][1]["step"] is None
    assert "LAST LINE" not in "\n".join(status_lines(status)), "of no rank is there anything to say"


def test_what_was_last_read_on_the_hosts_holds_where_nothing_was_gathered() -> None:
    status = of_gathered(live(), {1: "step 9\n"})
    validate("status", status)
    assert [rank["step"] for rank in status["ranks"]][:3] == [12, 9, None]
    assert [node["gpus"] for node in status["nodes"]] == [None] * 3, "that was another time's"


def test_without_a_terminal_only_what_has_changed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    screen, status = Screen(), live()
    screen.show(status)
    first = out.getvalue().splitlines()
    assert len(first) == 1 + 3 + 6
    assert first[4].endswith("rank 0 gpu0 epoch 1 step 12/40")
    status["ranks"][0].update(bytes=5000, line_age_s=9.0)
    screen.show(status)
    assert out.getvalue().splitlines() == first
    status["ranks"][0].update(step=13)
    screen.show(status)
    assert out.getvalue().splitlines()[len(first) :][0].endswith("rank 0 gpu0 epoch 1 step 13/40")
    assert "\x1b" not in out.getvalue()


def test_a_parameter_server_has_a_line_too() -> None:
    first, *others = RECORD.nodes
    record = replace(RECORD, nodes=(replace(first, servers=(0, 1)), *others))
    plain = document(record, all_running())
    states: dict[str, dict[str, Any]] = {
        "gpu0": {"servers": [{"server": 0, "started_at": 5.0}, {"server": 1, "started_at": None}]}
    }
    for status in (added(plain, states), of_gathered(plain, {})):
        validate("status", status)
    shown = "\n".join(status_lines(added(plain, states)))
    assert "server 0  gpu0  yes" in shown
    assert "server 1  gpu0  no" in shown
    assert "server" not in "\n".join(status_lines(live()))
