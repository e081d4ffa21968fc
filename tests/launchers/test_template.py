"""A template of one's own starts another launcher: the path from the plan to each rank's log is general.

PyTorch is not installed for this (its wheel for Linux is gigabytes): the shipped template `torchrun` starts
`python -m torch.distributed.run`, and what answers to that name here is `launcher_shaped_like_torchrun.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.planning import templating

SHAPED = Path(__file__).with_name("launcher_shaped_like_torchrun.py")
SCRIPT = """
import os, sys
print(os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"], *sys.argv[1:], flush=True)
sys.exit(int(os.environ["RANK"]) if "fail" in sys.argv else 0)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a script and two local nodes, whose interpreter has no PaddlePaddle."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=60)
    package = tmp_path / "packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    shutil.copyfile(SHAPED, package / "run.py")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "inventory.ini").write_text(
        "[nodes]\nn1 node_ip=127.0.0.2\nn2 node_ip=127.0.0.3\n[nodes:vars]\nansible_connection=local\n"
        f"nproc_per_node=2\npython={bare}/bin/python\nremote_dir={tmp_path}/remote\n"
        f"env_PYTHONPATH={package.parent.parent}\n"
    )
    return folder


def clusterkit(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    base = project.parent
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(base),
        "XDG_STATE_HOME": str(base / "state"),
        "LANG": "C.UTF-8",
    }
    # The checks would find what other tests have started on this machine.
    command = [sys.executable, "-m", "clusterkit", *words]
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=150)


def test_torchrun_from_the_plan_to_the_logs(project: Path) -> None:
    ran = clusterkit(
        project,
        "launch",
        "--no-preflight",
        "--template",
        "torchrun",
        "inventory.ini",
        "train.py",
        "a b",
        "--x",
    )
    assert ran.returncode == 0, ran.stderr
    for rank in range(4):
        log = clusterkit(project, "logs", "--rank", str(rank))
        assert log.stdout == f"{rank} 4 127.0.0.2 a b --x\n"
    status = json.loads(clusterkit(project, "status", "--json").stdout)
    assert [(rank["host"], rank["exit_code"]) for rank in status["ranks"]] == [
        *[("n1", 0)] * 2,
        *[("n2", 0)] * 2,
    ]


def test_the_rank_that_fails_under_it_is_named(project: Path) -> None:
    ran = clusterkit(
        project, "launch", "--no-preflight", "--template", "torchrun", "inventory.ini", "train.py", "fail"
    )
    assert ran.returncode in (1, 2, 3), ran.stderr
    assert f"rank {ran.returncode} on n" in ran.stderr.splitlines()[-1]


def test_without_paddle_paddles_own_template_cannot_be_used(project: Path) -> None:
    ran = clusterkit(project, "launch", "--dry-run", "inventory.ini", "train.py")
    assert "Paddle is not installed" in ran.stderr
    ran = clusterkit(
        project,
        "launch",
        "--no-preflight",
        "--dry-run",
        "--template",
        "paddle-launch",
        "inventory.ini",
        "train.py",
    )
    assert ran.returncode == 2
    assert "'command' is undefined" in ran.stderr


def test_a_template_beside_the_inventory_is_used_and_said(project: Path) -> None:
    (project / "templates").mkdir()
    (project / "templates" / "paddle-launch.sh.j2").write_text("# {{ world_size }} ranks, {{ nonsense }}\n")
    ran = clusterkit(project, "launch", "--no-preflight", "--dry-run", "inventory.ini", "train.py")
    assert "no PaddlePaddle was found there" in ran.stderr
    mine = project / "mine.sh.j2"
    mine.write_text("# {{ world_size }} ranks\n")
    ran = clusterkit(
        project,
        "launch",
        "--no-preflight",
        "--dry-run",
        "--output",
        "out",
        "--template",
        str(mine),
        "inventory.ini",
        "train.py",
    )
    assert ran.returncode == 0, ran.stderr
    assert f"node.sh is made by the template {mine}" in ran.stdout
    assert (project / "out" / "n2" / "node.sh").read_text() == "# 4 ranks\n"


def test_a_template_that_is_not_there(project: Path) -> None:
    ran = clusterkit(project, "launch", "--template", "nothing", "inventory.ini", "train.py")
    assert ran.returncode == 2
    assert "--template nothing: there is no such file" in ran.stderr
    assert "paddle-launch, torchrun" in ran.stderr


def test_shellcheck_accepts_what_torchrun_s_template_makes() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    values = {
        "run_id": "r1",
        "alias": "gpu01",
        "environment": [("A", "$x")],
        "workdir": "/w d",
        "log_dir": "/l",
        "node_rank": 0,
        "node_count": 2,
        "node_ip": "10.0.0.1",
        "ranks": (0, 1),
        "processes": 2,
        "world_size": 4,
        "devices": (0, 3),
        "python": "python3",
        "master_ip": "10.0.0.1",
        "master_port": 1,
        "entry": ("python3", "-u", "/r/agent.pyz"),
        "script": ("a b.py", "it's"),
    }
    text = templating.render("torchrun.sh.j2", values)
    assert "export CUDA_VISIBLE_DEVICES=0,3\n" in text
    done = subprocess.run(["shellcheck", "-"], input=text.encode(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout.decode()
