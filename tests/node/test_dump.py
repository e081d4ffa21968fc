"""`agent.pyz stacks`: real processes, asked all at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.node import dump, stacks
from clusterkit.node.files import RunFiles
from tests.node.loopback import wait_for

# Installed with what the tests need.
PY_SPY = Path(sys.executable).parent / "py-spy"

SCRIPT = """
import pathlib, sys, time
def standing():
    pathlib.Path(sys.argv[1]).touch()
    time.sleep(60)
standing()
"""


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    made = RunFiles(str(tmp_path / "run"))
    Path(made.ranks).mkdir(parents=True)
    return made


@contextlib.contextmanager
def standing(files: RunFiles, local: int, *, registered: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands still in a function, once it does."""
    environ = dict(os.environ)
    if registered:
        stacks.arrange(files, local, environ)
    mark = Path(files.ranks) / f"{local}.stands"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(mark)], env=environ)
    try:
        wait_for(mark.exists, 30, "the process stands")
        yield process
    finally:
        process.kill()
        process.wait(10)


def entry(local: int, pid: int | None, **more: Any) -> dict[str, Any]:
    return {"local_rank": local, "rank": 4 + local, "pid": pid, "started_at": 1.0, "ended_at": None, **more}


def test_each_that_runs_tells_its_own(files: RunFiles) -> None:
    with standing(files, 0) as first, standing(files, 2) as server:
        ranks = [entry(0, first.pid), entry(1, first.pid, ended_at=2.0), entry(3, None)]
        parameter = {
            "server": 1,
            **{key: value for key, value in entry(2, server.pid).items() if key != "rank"},
        }
        for _ in range(2):
            found = dump.collect(files, {"ranks": ranks, "servers": [parameter]})
            assert [(each.get("rank"), each.get("server"), each["pid"]) for each in found] == [
                (4, None, first.pid),
                (None, 1, server.pid),
            ]
            assert all(each["text"].count("in standing") == 1 and not each["problem"] for each in found)
        assert first.poll() is server.poll() is None, "the job goes on"


def test_a_child_of_an_entry_is_asked_in_its_place(files: RunFiles) -> None:
    """As in a container, where the entry is what the host knows."""
    with standing(files, 0):
        (found,) = dump.collect(files, {"ranks": [entry(0, os.getpid())]})
        assert "in standing" in found["text"]
        assert found["pid"] != os.getpid()


def test_a_stopped_process_is_not_waited_for_for_ever(files: RunFiles) -> None:
    with standing(files, 0) as process, standing(files, 1) as other:
        process.send_signal(signal.SIGSTOP)
        found = dump.collect(files, {"ranks": [entry(0, process.pid), entry(1, other.pid)]}, limit=1.0)
        assert [bool(each["text"]) for each in found] == [False, True]
        assert found[0]["problem"].startswith("it did not answer in time: it is stopped")


def test_a_process_that_has_not_registered_is_not_signalled(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(files.ranks))
    with standing(files, 0, registered=False) as process:
        (found,) = dump.collect(files, {"ranks": [entry(0, process.pid)]})
        assert (found["text"], process.poll()) == ("", None)
        assert "has not registered" in found["problem"]


@pytest.mark.skipif(not PY_SPY.exists() or os.geteuid() != 0, reason="needs py-spy and root")
def test_py_spy_looks_into_one_that_has_not_registered(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(PY_SPY.parent), prepend=os.pathsep)
    with standing(files, 0, registered=False) as process:
        (found,) = dump.collect(files, {"ranks": [entry(0, process.pid)]}, limit=30)
        assert "standing (" in found["text"]
        assert not found["problem"]
