"""`stacks`: what each rank and server of this node is doing now, as its own Python says, or py-spy."""

import os
import subprocess
import time
from typing import Any, Dict, List, Optional

from . import processes, stacks
from .files import RunFiles, size_of

# A process that is not stopped writes its stacks within milliseconds, whatever it waits for.
LIMIT = 5.0
# A file that has not grown for so long has the whole of them.
_QUIET = 0.2
# A process with hundreds of threads writes some 100 kB.
_MOST = 512 * 1024


def collect(files: RunFiles, state: Dict[str, Any], limit: float = LIMIT) -> List[Dict[str, Any]]:
    """One dict for each that runs: `rank` or `server`, `pid`, and `text`, or `problem` if there is none."""
    entries = [_Asked(files, "rank", each) for each in state["ranks"] if _runs(each)]
    entries += [_Asked(files, "server", each) for each in state.get("servers", []) if _runs(each)]
    end = time.monotonic() + limit
    for entry in entries:
        entry.ask()
    return [entry.answer(end) for entry in entries]


def _runs(state: Dict[str, Any]) -> bool:
    return bool(state["pid"]) and state["started_at"] is not None and state["ended_at"] is None


class _Asked:
    """One process, and where its stacks will be."""

    def __init__(self, files: RunFiles, kind: str, state: Dict[str, Any]) -> None:
        self._whose = {kind: state[kind]}
        self._path = files.stacks(state["local_rank"])
        # In a container what is known here is the entry, whose child the script is.
        known = [state["pid"]] + processes.children([state["pid"]])
        listening = [pid for pid in known if stacks.listens(pid)]
        self._listens = bool(listening)
        self._pid = listening[0] if listening else state["pid"]
        self._before = 0

    def ask(self) -> None:
        if self._listens:
            self._before = size_of(self._path)
            stacks.ask(self._pid)

    def answer(self, end: float) -> Dict[str, Any]:
        if not self._listens:
            text = _py_spy(self._pid, max(1.0, end - time.monotonic()))
            problem = "it has not registered for this: no Python, or one that ignores its environment"
            return self._told(text or "", "" if text else problem)
        if not self._written(end):
            return self._told("", "it did not answer in time: it is stopped, or waits in the kernel")
        with open(self._path, "rb") as file:
            file.seek(self._before)
            return self._told(file.read(_MOST).decode("utf-8", "replace"), "")

    def _told(self, text: str, problem: str) -> Dict[str, Any]:
        return dict(self._whose, pid=self._pid, text=text, problem=problem)

    def _written(self, end: float) -> bool:
        size, since = self._before, time.monotonic()
        while True:
            now, found = time.monotonic(), size_of(self._path)
            if found != size:
                size, since = found, now
            if size > self._before and now - since >= _QUIET:
                return True
            if now > end:
                return size > self._before
            time.sleep(0.02)


def _py_spy(pid: int, limit: float) -> Optional[str]:
    """What py-spy (a program of its own) sees of any Python, where the host has it and it may look."""
    try:
        child = subprocess.Popen(
            ["py-spy", "dump", "--full-filenames", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, LC_ALL="C.UTF-8"),
        )
    except OSError:
        return None
    try:
        out, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return None
    return out[:_MOST].decode("utf-8", "replace") if child.returncode == 0 else None
