"""Python stacks on request, from processes that have registered for it and from no other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.node import stacks
from clusterkit.node.files import RunFiles

SCRIPT = """
import threading, time
def waits_in_a_thread():
    time.sleep(30)
threading.Thread(target=waits_in_a_thread, daemon=True).start()
def odd_one():
    open(__file__ + ".running", "w").close()
    time.sleep(30)
odd_one()
"""


@contextlib.contextmanager
def running(tmp_path: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], env=environ)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    made = RunFiles(str(tmp_path / "run"))
    Path(made.ranks).mkdir(parents=True)
    return made


def until(condition: object, limit: float = 15.0) -> bool:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if callable(condition) and condition():
            return True
        time.sleep(0.05)
    return False


def test_all_threads_are_written_and_the_process_goes_on(files: RunFiles, tmp_path: Path) -> None:
    environ = dict(os.environ)
    stacks.arrange(files, 1, environ)
    with running(tmp_path, environ) as process:
        assert until(lambda: stacks.listens(process.pid) and (tmp_path / "script.py.running").exists())
        dump = Path(files.stacks(1))
        for _ in range(2):
            before = dump.read_text().count("in odd_one")
            process.send_signal(stacks.REQUEST)
            assert until(lambda: dump.read_text().count("in odd_one") > before)  # noqa: B023
        assert "in waits_in_a_thread" in dump.read_text()
        assert process.poll() is None


def test_a_process_that_has_not_registered_is_known(tmp_path: Path) -> None:
    with running(tmp_path, dict(os.environ)) as process:
        assert not until(lambda: stacks.listens(process.pid), 1.0)
    assert not stacks.listens(process.pid)


def test_what_customised_python_before_still_does(files: RunFiles, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys\nsys.customised = True\n")
    environ = {**os.environ, "PYTHONPATH": str(theirs)}
    stacks.arrange(files, 0, environ)
    asked = "import signal, sys; print(sys.customised, signal.getsignal(signal.SIGUSR1))"
    said = subprocess.run(
        [sys.executable, "-c", asked], env=environ, capture_output=True, text=True, check=True
    )
    assert said.stdout.split()[0] == "True"
    assert str(signal.getsignal(signal.SIGUSR1)) in said.stdout
    assert said.stderr == ""


def test_where_nothing_can_be_written_the_job_starts_as_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {"PATH": "/bin"}
    stacks.arrange(RunFiles(str(tmp_path / "file" / "run")), 0, environ)
    assert environ == {"PATH": "/bin"}
