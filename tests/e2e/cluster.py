"""Real hosts with a real sshd, and clusterkit as its user runs it: a command with a home of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.sandbox.sandbox import Sandbox

JOBS = Path(__file__).parent / "jobs"


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.err.rstrip().splitlines()[-1] if self.err.strip() else ""

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of one kind of a `launch --json`."""
        return [event for event in map(json.loads, self.out.splitlines()) if event["event"] == kind]


class Running:
    """A command that goes on; `err` and `out` grow while it does."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        # Beside the project, not in it: what lies there would be sent to the hosts.
        self._files = (cwd.parent / f"out-{time.monotonic_ns()}", cwd.parent / f"err-{time.monotonic_ns()}")
        with open(self._files[0], "wb") as out, open(self._files[1], "wb") as err:
            self.process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._files[0].read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._files[1].read_text(errors="replace")

    def until(self, text: str, limit: float = 60.0) -> str:
        """Wait until the text (a regular expression) stands in what it printed; the text found."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            found = re.search(text, self.out + self.err)
            if found:
                return found.group(0)
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(
            f"`{text}` was not printed (exit {self.process.poll()}):\n{self.out}\n{self.err}"
        )

    def send(self, signum: int) -> None:
        self.process.send_signal(signum)

    def wait(self, limit: float = 90.0) -> Finished:
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            raise AssertionError(f"still running after {limit} s:\n{self.out}\n{self.err}") from None
        return Finished(code, self.out, self.err)


class Cluster:
    """A sandbox, a working directory with the jobs, and the command line."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self.folder = folder
        self.state = folder.parent / "state"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder.parent / "home"),
            "XDG_STATE_HOME": str(self.state),
            "LANG": "C.UTF-8",
        }
        Path(self.env["HOME"]).mkdir(exist_ok=True)
        self._running: list[Running] = []

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.sandbox.hosts

    def start(self, *arguments: str) -> Running:
        """Start `clusterkit ARGUMENTS…`; `INVENTORY` stands for the sandbox's inventory."""
        words = [str(self.sandbox.inventory) if word == "INVENTORY" else word for word in arguments]
        running = Running([sys.executable, "-m", "clusterkit", *words], self.folder, self.env)
        self._running.append(running)
        return running

    def run(self, *arguments: str, limit: float = 120.0) -> Finished:
        return self.start(*arguments).wait(limit)

    def launch(self, *arguments: str, limit: float = 120.0) -> Finished:
        return self.run("launch", "INVENTORY", *arguments, limit=limit)

    def status(self) -> dict[str, Any]:
        finished = self.run("status", "--json")
        assert finished.code == 0, finished.err
        return dict(json.loads(finished.out))

    def marked(self, run_id: str = "") -> list[tuple[str, tuple[str, ...]]]:
        """Every process on every host that is part of a run: by its environment, or a child that has none."""
        found = []
        for host in self.hosts:
            for process in self.sandbox.processes(host):
                in_run = any(
                    name == "CLUSTERKIT_RUN_ID" and run_id in value
                    for name, value in process.environment.items()
                )
                if in_run or "987" in process.argv or "agent.pyz" in " ".join(process.argv):
                    found.append((host, process.argv))
        return found

    def gone(self, limit: float = 15.0) -> bool:
        """True once no process of a run is left on any host."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if not self.marked():
                return True
            time.sleep(0.2)
        return False

    def finish(self) -> None:
        """End what a failed test left running, here and on the hosts."""
        for running in self._running:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait(10)
        for host in self.hosts:
            for process in self.sandbox.processes(host):
                if "CLUSTERKIT_RUN_ID" in process.environment or "987" in process.argv:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)


def clone_jobs(folder: Path) -> Path:
    """A folder with the jobs, as a user's project."""
    shutil.copytree(JOBS, folder)
    return folder
