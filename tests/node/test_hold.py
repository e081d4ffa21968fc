"""What a run holds of its host, with real processes: who is refused, and what becomes of a dead hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterkit.node.hold import Hold
from clusterkit.node.plan import Plan, parse

_HOLDER = """
import json, sys, time
from clusterkit.node.hold import Hold
from clusterkit.node.plan import parse
assert Hold(parse(json.loads(sys.argv[1])), sys.argv[2]).take() == ""
print("held", flush=True)
time.sleep(60)
"""


def described(run_id: str, devices: list[int] | None, first_port: int) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "alias": "gpu01",
        "node_rank": 0,
        "node_ip": "10.0.0.1",
        "ranks": [0],
        "world_size": 1,
        "nodes": [{"alias": "gpu01", "node_ip": "10.0.0.1", "ranks": [0]}],
        "channel_port": first_port,
        "master_port": first_port + 1,
        "port_window": [first_port, first_port + 9],
        "job_id": run_id,
        "workdir": "/w",
        "log_dir": "/l",
        "keep_environment": [],
        "hold": {"owner": f"{run_id}@laptop", "devices": devices},
    }


def plan(run_id: str, devices: list[int] | None, first_port: int) -> Plan:
    return parse(described(run_id, devices, first_port))


def holds(place: Path) -> list[Path]:
    return sorted(place.glob("*/*.json"))


def test_disjoint_runs_hold_one_host_side_by_side(tmp_path: Path) -> None:
    ann, bob = Hold(plan("ann", [0, 1], 100), str(tmp_path)), Hold(plan("bob", [2], 110), str(tmp_path))
    cpu = Hold(plan("cpu", None, 120), str(tmp_path))
    assert (ann.take(), bob.take(), cpu.take()) == ("", "", "")
    first = json.loads(holds(tmp_path)[0].read_text())
    assert (first["run_id"], first["owner"], first["devices"]) == ("ann", "ann@laptop", [0, 1])
    assert holds(tmp_path)[0].stat().st_mode & 0o777 == 0o644, "everybody may know"
    for folder in (tmp_path, holds(tmp_path)[0].parent):
        assert folder == tmp_path or folder.stat().st_mode & 0o7777 == 0o1777
    ann.release()
    assert len(holds(tmp_path)) == 2
    assert Hold(plan("eve", [0, 1], 130), str(tmp_path)).take() == ""


@pytest.mark.parametrize(
    ("devices", "first_port", "refused"),
    [
        ([1, 5], 200, "GPU 1 is held by run ann of ann@laptop for 0 s"),
        ([5], 109, "a port of 109-118 is held by run ann of ann@laptop for 0 s"),
        (None, 91, "a port of 91-100 is held by run ann of ann@laptop for 0 s"),
        (None, 110, ""),
    ],
)
def test_what_another_run_holds(
    tmp_path: Path, devices: list[int] | None, first_port: int, refused: str
) -> None:
    ann = Hold(plan("ann", [0, 1], 100), str(tmp_path))
    assert ann.take() == ""
    assert Hold(plan("bob", devices, first_port), str(tmp_path)).take() == refused
    ann.release()


def test_two_nodes_of_one_run_may_share_a_machine(tmp_path: Path) -> None:
    first = Hold(plan("ann", [0], 100), str(tmp_path))
    second = Hold(plan("ann", [1], 100)._replace(node_rank=1), str(tmp_path))
    assert (first.take(), second.take()) == ("", "")
    assert len(holds(tmp_path)) == 2


def test_the_hold_of_a_killed_supervisor_is_broken_and_that_of_a_stopped_one_is_not(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _HOLDER, json.dumps(described("ann", [0], 100)), str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        os.kill(holder.pid, signal.SIGSTOP)
        bob = Hold(plan("bob", [0], 200), str(tmp_path))
        assert bob.take().startswith("GPU 0 is held by run ann"), "silent is not gone"
        assert len(holds(tmp_path)) == 1
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(10)
        assert bob.take() == ""
    assert [json.loads(path.read_text())["run_id"] for path in holds(tmp_path)] == ["bob"]


def test_what_others_put_there_breaks_nothing(tmp_path: Path) -> None:
    ann = Hold(plan("ann", [0], 100), str(tmp_path))
    assert ann.take() == ""
    folder = holds(tmp_path)[0].parent
    (folder / "broken.json").write_text("{")
    (folder / "strange.json").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.json")
    assert Hold(plan("bob", [1], 200), str(tmp_path)).take() == ""
    assert Path("/etc/passwd").exists()


def test_a_plan_of_an_older_version_holds_nothing(tmp_path: Path) -> None:
    assert Hold(plan("ann", [0], 100)._replace(hold=None), str(tmp_path)).take() == ""
    assert holds(tmp_path) == []
