"""The example training script does what its text says, alone and on several ranks."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = Path(__file__).parent.parent / "examples" / "train.py"


def missing() -> str:
    """Why PaddlePaddle cannot run here; empty where it can."""
    if importlib.util.find_spec("paddle") is None:
        return "PaddlePaddle is not installed (extra: cpu)"
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return "PaddlePaddle needs the system library libgomp1"
    return ""


pytestmark = [pytest.mark.paddle, pytest.mark.skipif(bool(missing()), reason=missing())]


def run(command: list[str], folder: Path) -> str:
    """What the command printed on stdout; it must end with 0, and see nothing of the tests' environment."""
    environment = {"PATH": os.defpath, "HOME": str(folder)}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def train(folder: Path, *arguments: str) -> str:
    return run([sys.executable, str(TRAIN), *arguments], folder)


def losses(output: str) -> dict[int, float]:
    """Step → loss, of every line that tells one."""
    found = re.findall(r"^rank \d+/\d+ step (\d+) loss (\S+)$", output, re.MULTILINE)
    return {int(step): float(loss) for step, loss in found}


def saved_steps(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def forty_steps(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of one uninterrupted training."""
    return train(tmp_path_factory.mktemp("straight"), "--steps", "40", "--amp")


def test_the_loss_falls(forty_steps: str) -> None:
    told = losses(forty_steps)
    assert list(told) == [1, 10, 20, 30, 40]
    assert told[40] < told[1] / 4


def test_amp_on_a_cpu_says_why_it_is_off(forty_steps: str) -> None:
    assert "rank 0/1 amp is off: " in forty_steps


def test_the_sum_is_the_last_line(forty_steps: str) -> None:
    assert forty_steps.splitlines()[-1] == "rank 0/1 all_reduce sum=0 expected=0"


def test_an_interrupted_training_ends_where_a_straight_one_does(forty_steps: str, tmp_path: Path) -> None:
    train(tmp_path, "--steps", "23")
    (tmp_path / "checkpoints" / "step-00000099.ckpt.writing").write_bytes(b"cut off by a power cut")
    rest = train(tmp_path, "--steps", "40")
    assert rest.startswith("rank 0/1 resumed from step 23 (checkpoints/step-00000023.ckpt)\n")
    assert losses(rest)[40] == losses(forty_steps)[40]


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    train(tmp_path, "--steps", "25", "--save-every", "10")
    assert saved_steps(tmp_path) == ["step-00000020.ckpt", "step-00000025.ckpt"]


def test_nothing_is_trained_twice(tmp_path: Path) -> None:
    train(tmp_path, "--steps", "2")
    again = train(tmp_path, "--steps", "2")
    assert "step 2 is done already" in again
    assert losses(again) == {}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(folder: Path, *arguments: str, example: Path = TRAIN) -> dict[int, str]:
    """Local rank → log, after Paddle's own launcher has run the example on two ranks."""
    master = f"127.0.0.1:{free_port()}"
    launcher = [sys.executable, "-m", "paddle.distributed.launch", "--master", master, "--nnodes", "1"]
    options = ["--rank", "0", "--host", "127.0.0.1", "--nproc_per_node", "2", "--log_dir", "logs"]
    run([*launcher, *options, "--log_overwrite", "true", str(example), *arguments], folder)
    return {rank: (folder / "logs" / f"workerlog.{rank}").read_text() for rank in (0, 1)}


def test_two_ranks_share_the_data_and_resume_together(tmp_path: Path) -> None:
    first = launch(tmp_path, "--steps", "3", "--log-every", "1")
    for rank, log in first.items():
        assert f"rank {rank}/2 all_reduce sum=1 expected=1" in log
    assert losses(first[0]) != losses(first[1]), "both ranks trained on the same samples"
    assert saved_steps(tmp_path) == ["step-00000003.ckpt"]

    second = launch(tmp_path, "--steps", "5", "--log-every", "1")
    assert "rank 1/2 resumed from step 3\n" in second[1]
    assert [list(losses(log)) for log in second.values()] == [[4, 5], [4, 5]]


def test_a_static_graph_averages_over_the_ranks(tmp_path: Path) -> None:
    """Different data on each rank, equal weights on all: without the all-reduce they would differ."""
    logs = launch(tmp_path, "--steps", "30", "--log-every", "10", example=TRAIN.with_name("static_graph.py"))
    told = [losses(log.replace(f"rank {rank}/2", "rank 0/2")) for rank, log in logs.items()]
    assert [list(each) for each in told] == [[1, 10, 20, 30]] * 2
    assert told[0] != told[1], "both ranks trained on the same samples"
    assert all(each[30] < each[1] / 100 for each in told)
    weights = {re.findall(r"^rank ./2 weights (\S+)$", log, re.MULTILINE)[0] for log in logs.values()}
    assert len(weights) == 1, weights
