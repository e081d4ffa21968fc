"""The rank entry alone: what the script gets, what the launcher sees, what the record says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.node import plan, ranks

from .loopback import Cluster, cluster, wait_for

Entry = subprocess.Popen[bytes]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, "", ranks_per_node=(1, 2)) as made:
        yield made


@pytest.fixture
def enter(run: Cluster) -> Iterator[Callable[..., Entry]]:
    """Starts the entry of global rank 1 (local rank 0 of node 1) as Paddle's launcher does."""
    started: list[Entry] = []

    def start(script: str, *arguments: str, name: str = "train.sh", **environ: str) -> Entry:
        if script:
            (run.workdir / name).write_text(script)
            (run.workdir / name).chmod(0o755)
        world = {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "3", "PADDLE_RANK_IN_NODE": "0"}
        command = [*run.agent(1, "rank"), str(run.workdir / name), *arguments]
        entry = subprocess.Popen(
            command,
            env={**os.environ, **world, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        started.append(entry)
        return entry

    yield start
    for entry in started:
        if entry.poll() is None:
            entry.kill()
            entry.wait()
        assert entry.stdout is not None
        entry.stdout.close()


def record(run: Cluster, local: int = 0) -> dict[str, Any]:
    path = run.records(1) / "ranks" / f"{local}.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"child": None}
    return known


def output(entry: Entry) -> str:
    out, _ = entry.communicate(timeout=20)
    return out.decode()


@pytest.mark.parametrize(
    ("script", "seen", "code", "signum"),
    [
        ("#!/bin/sh\nexit 0\n", 0, 0, None),
        ("#!/bin/sh\nexit 7\n", 7, 7, None),
        ("#!/bin/sh\nexit 143\n", 143, 143, None),
        ("#!/bin/sh\nkill -KILL $$\n", -9, None, 9),
        ("#!/bin/sh\nkill -TERM $$\n", -15, None, 15),
        ("#!/bin/sh\nkill -SEGV $$\n", -11, None, 11),
    ],
)
def test_the_launcher_sees_what_the_script_did(
    run: Cluster, enter: Callable[..., Entry], script: str, seen: int, code: int | None, signum: int | None
) -> None:
    entry = enter(script)
    entry.wait(20)
    assert entry.returncode == seen
    known = record(run)
    assert (known["exit_code"], known["signal"]) == (code, signum)
    assert known["started_at"] <= known["ended_at"]
    assert known["pid"] == entry.pid


def test_the_script_gets_arguments_secrets_and_no_stdin(run: Cluster, enter: Callable[..., Entry]) -> None:
    entry = enter('#!/bin/sh\necho "$TOKEN|$1|$2"; cat; pwd\n', "a b", "*")
    assert output(entry) == f"a secret|a b|*\n{Path.cwd()}\n"


def test_each_signal_arrives_once(run: Cluster, enter: Callable[..., Entry]) -> None:
    """Paddle's launcher signals the whole process group of the entry."""
    script = (
        "import os, signal, time\n"
        "def say(number, frame):\n    print(signal.Signals(number).name, flush=True)\n"
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):\n    signal.signal(number, say)\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end:\n    time.sleep(0.1)\n"
    )
    entry = enter(script, name="train.py")
    assert entry.stdout is not None
    assert entry.stdout.readline() == b"ready\n"
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        os.killpg(entry.pid, number)
        entry.stdout.readline()
        wait_for(lambda: record(run)["child"], 2, "the record")
    assert output(entry) == ""
    assert entry.returncode == 0


def test_a_shell_scripts_children_get_the_signal_too(run: Cluster, enter: Callable[..., Entry]) -> None:
    script = "#!/bin/sh\nsh -c 'trap \"echo child; exit 5\" TERM; echo ready; sleep 9 & wait $!'\nexit $?\n"
    entry = enter(script)
    assert entry.stdout is not None
    assert entry.stdout.readline() == b"ready\n"
    os.kill(entry.pid, signal.SIGTERM)
    assert "child\n" in output(entry)
    assert entry.returncode == -signal.SIGTERM


def test_the_script_does_not_outlive_a_killed_entry(run: Cluster, enter: Callable[..., Entry]) -> None:
    entry = enter("#!/bin/sh\ntrap '' TERM INT HUP\necho $$\nwhile :; do sleep 0.1; done\n")
    assert entry.stdout is not None
    script = int(entry.stdout.readline())
    entry.kill()
    wait_for(lambda: not Path(f"/proc/{script}").exists(), 3, "the script is gone")


def test_the_entry_gets_sigterm_when_its_launcher_dies(run: Cluster, tmp_path: Path) -> None:
    script = run.workdir / "train.sh"
    script.write_text(
        f"#!/bin/sh\ntrap 'echo saved >{tmp_path}/saved; exit 0' TERM\necho up\nsleep 9 & wait $!\n"
    )
    script.chmod(0o755)
    world = {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "3", "PADDLE_RANK_IN_NODE": "0"}
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True).wait()"
    command = [sys.executable, "-c", code, *run.agent(1, "rank"), str(script)]
    with subprocess.Popen(command, env={**os.environ, **world}, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"up\n"
        launcher.kill()
    wait_for(lambda: (tmp_path / "saved").exists(), 5, "the script has saved")
    wait_for(lambda: record(run)["ended_at"], 5, "the entry has recorded the end")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"PADDLE_TRAINERS_NUM": "2"}, "the launcher formed a world of 2 ranks, planned are 3"),
        ({"PADDLE_TRAINERS_NUM": ""}, "the launcher formed a world of  ranks, planned are 3"),
        ({"PADDLE_TRAINER_ID": "0"}, "the launcher made local rank 0 global rank 0, planned is 1"),
        ({"PADDLE_RANK_IN_NODE": "2"}, "the launcher started local rank 2, planned are 2 ranks"),
    ],
)
def test_a_rank_that_is_not_the_planned_one_does_not_run(
    run: Cluster, enter: Callable[..., Entry], environ: dict[str, str], words: str
) -> None:
    entry = enter("#!/bin/sh\necho I ran\n", **environ)
    assert output(entry) == f"clusterkit: {words}; the script was not started\n"
    assert entry.returncode == 1
    known = record(run, int(environ.get("PADDLE_RANK_IN_NODE", 0)))
    assert known["failure"] == {"kind": "world size", "detail": words}


@pytest.mark.parametrize(
    ("name", "script", "words"),
    [
        ("gone.py", "", "the script {0}/gone.py does not exist in"),
        ("gone.sh", "", "{0}/gone.sh cannot be started in"),
        ("odd.sh", "#!/no/such/interpreter\n", "{0}/odd.sh cannot be started in"),
    ],
)
def test_a_script_that_cannot_start_is_named(
    run: Cluster, enter: Callable[..., Entry], name: str, script: str, words: str
) -> None:
    entry = enter(script, name=name)
    assert words.format(run.workdir) in output(entry)
    assert entry.returncode == 127
    assert record(run)["exit_code"] == 127


def test_a_rank_that_cannot_be_recorded_does_not_run(run: Cluster, enter: Callable[..., Entry]) -> None:
    (run.records(1) / "ranks").write_text("a file")
    assert output(enter("#!/bin/sh\necho I ran\n")) == (
        f"clusterkit: {run.records(1)}/ranks: File exists; the script was not started\n"
    )


def test_a_record_is_kept_on_a_disk_that_has_filled_up(run: Cluster, enter: Callable[..., Entry]) -> None:
    """A folder in the way of the new record stands in for a full disk: the old one is written over."""
    entry = enter("#!/bin/sh\necho $PPID\nread line </dev/null\nsleep 0.5\nexit 3\n")
    assert entry.stdout is not None
    entry.stdout.readline()
    wait_for(lambda: record(run)["child"], 2, "the first record")
    (run.records(1) / "ranks" / f"0.json.{entry.pid}.part").mkdir()
    assert "cannot be replaced: Is a directory" in output(entry)
    assert record(run)["exit_code"] == 3


def into(run: Cluster, where: Path) -> str:
    """What the log has that the run finds, after a rank has spoken on a stdout that leads to `where`."""
    (run.workdir / "talk.sh").write_text("#!/bin/sh\necho out\necho err >&2\n")
    (run.workdir / "talk.sh").chmod(0o755)
    world = {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "3", "PADDLE_RANK_IN_NODE": "0"}
    with open(where, "ab") as log:
        command = [*run.agent(1, "rank"), str(run.workdir / "talk.sh")]
        subprocess.run(command, env={**os.environ, **world}, stdout=log, stderr=log, check=True, timeout=30)
    files, planned = plan.open_run(str(run.run_dir(1)))
    return Path(ranks.find_log(planned, files, 0)).read_text()


def test_a_log_whose_name_only_the_launcher_knows_is_found(run: Cluster) -> None:
    """2.3 puts six letters into it that it draws."""
    logs = Path(run.plan(1)["log_dir"])
    logs.mkdir(parents=True, exist_ok=True)
    assert into(run, logs / "r1.qwerty.0.log") == "out\nerr\n"
    assert record(run)["log"] == "r1.qwerty.0.log"
    assert not (logs / "workerlog.0").exists()


def test_what_no_file_keeps_is_kept_by_the_rank_itself(run: Cluster) -> None:
    Path(run.plan(1)["log_dir"]).mkdir(parents=True, exist_ok=True)
    assert into(run, Path(os.devnull)) == "out\nerr\n"
    assert record(run)["log"] == "workerlog.0"
