"""Finding and ending a run's processes: real ones, that do not want to be found."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterkit.node import processes

from .loopback import wait_for

# A stand-in for the supervisor: a subreaper that starts a script and reports what it finds, then ends it.
SUBREAPER = """
import os, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from clusterkit.node import processes
assert processes.become_subreaper()
subprocess.Popen(["sh", "-c", sys.argv[2]])
time.sleep(0.5)
find = lambda: processes.of_run(sys.argv[3], 0, os.getpid())
print(" ".join(str(pid) for pid in find()), flush=True)
sys.stdin.readline()
ending = processes.Ending(find, float(sys.argv[4]), time.monotonic())
while not ending.step(time.monotonic()):
    time.sleep(0.01)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
print(len(ending.killed), ending.left, flush=True)
"""
ROOT = Path(processes.__file__).parents[2]


class Subreaper:
    def __init__(self, script: str, grace: float) -> None:
        self.run_id = "p-" + secrets.token_hex(4)
        marks = {**os.environ, processes.RUN_MARK: self.run_id, processes.NODE_MARK: "0"}
        command = [sys.executable, "-c", SUBREAPER, str(ROOT), script, self.run_id, str(grace)]
        self.process = subprocess.Popen(
            command, env=marks, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.found = {int(pid) for pid in self._line().split()}

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._line().strip()

    def close(self) -> None:
        for pid in self.found:
            if processes.process(pid) is not None:
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def subreaper() -> Iterator[Callable[[str, float], Subreaper]]:
    made: list[Subreaper] = []

    def make(script: str, grace: float = 5.0) -> Subreaper:
        made.append(Subreaper(script, grace))
        return made[-1]

    yield make
    for one in made:
        one.close()


HIDING = {
    "plain": "exec sleep 60",
    "emptied environment": "env -i sleep 60 & wait",
    "own session": "setsid sleep 60 & wait",
    "double fork, own session, emptied environment": "(setsid env -i sleep 60 &) & sleep 60",
}


@pytest.mark.parametrize("how", HIDING)
def test_a_process_is_found_however_it_hides(how: str, subreaper: Callable[..., Subreaper]) -> None:
    tree = subreaper(HIDING[how])
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in tree.found]
    assert "sleep" in names
    assert tree.end() == "0 []"
    assert not [pid for pid in tree.found if processes.process(pid)]


def test_what_ignores_sigterm_is_killed_after_the_grace(subreaper: Callable[..., Subreaper]) -> None:
    script = (
        "trap '' TERM; (trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &) & sleep 60"
    )
    tree = subreaper(script, grace=0.5)
    at = time.monotonic()
    killed, _, left = tree.end().partition(" ")
    assert time.monotonic() - at >= 0.5
    assert int(killed) >= 2
    assert left == "[]"


def test_a_stopped_process_is_killed(subreaper: Callable[..., Subreaper]) -> None:
    tree = subreaper("exec sleep 60", grace=0.3)
    (pid,) = tree.found
    os.kill(pid, signal.SIGSTOP)
    # Until it has stopped, a SIGTERM would come first.
    wait_for(lambda: getattr(processes.process(pid), "state", "") == "T", 10, "the process has stopped")
    assert tree.end() == "1 []"


def test_a_process_that_forks_without_end_is_caught(subreaper: Callable[..., Subreaper]) -> None:
    script = "f() { trap '' TERM; setsid sleep 0.1; f & }; f; wait"
    assert subreaper(script, grace=0.3).end().endswith("[]")


def test_only_the_marks_of_both_run_and_node_count() -> None:
    run_id = "p-" + secrets.token_hex(4)
    started = []
    try:
        for mark in ({}, {processes.NODE_MARK: "0"}, {processes.NODE_MARK: "1"}):
            environ = {**os.environ, processes.RUN_MARK: run_id, **mark}
            started.append(subprocess.Popen(["sleep", "60"], env=environ))
        wait_for(lambda: set(processes.of_run(run_id, 0)) == {started[1].pid}, 2, "one process found")
        assert set(processes.of_run(run_id, 1)) == {started[2].pid}
        assert processes.of_run(run_id[:-1], 0) == {}
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["true"]) as process:
        wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "Z", 2, "a zombie")
        found = processes.process(process.pid)
        assert found is not None
        assert not processes.is_alive(process.pid, found.born)


def test_a_reused_pid_is_another_process() -> None:
    me = processes.process(os.getpid())
    assert me is not None
    assert processes.is_alive(me.pid, me.born)
    assert not processes.is_alive(me.pid, me.born - 1)
    # A signal for a process that has gone does not reach its successor.
    processes.send(signal.SIGKILL, [me._replace(born=me.born - 1)])


def test_a_name_with_blanks_and_parentheses_is_read(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "60"]) as process:
        try:
            found = wait_for(lambda: processes.process(process.pid), 2, "the process")
            assert found.parent == os.getpid()
        finally:
            process.kill()


def test_what_cannot_be_killed_is_reported_as_left(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = {7: processes.Process(7, 1, "D", 1)}
    monkeypatch.setattr(processes, "send", lambda *_: None)
    ending = processes.Ending(lambda: stuck, grace=1.0, now=0.0)
    now = 0.0
    while not ending.step(now):
        now += 0.1
        assert now < 30
    assert now >= 1.0 + processes.PROOF_LIMIT
    assert ending.left == [7]
    assert ending.killed == {7}


def test_hurry_brings_the_kill_forward_and_never_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(processes, "send", lambda signum, _: sent.append(signum))
    ending = processes.Ending(lambda: {7: processes.Process(7, 1, "S", 1)}, grace=40.0, now=0.0)
    ending.step(0.0, may_signal=False)
    assert sent == []
    ending.step(1.0)
    assert sent == [signal.SIGTERM]
    ending.hurry(2.0, 100.0)
    ending.hurry(2.0, 1.0)
    ending.step(3.5)
    assert sent[-1] == signal.SIGKILL
