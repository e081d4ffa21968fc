"""This node's ranks as their entries recorded them, with the size and the end of their logs."""

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from . import processes
from .files import RunFiles, last_bytes, read_json, size_of
from .plan import Plan

# How much of a failed rank's log travels with the node's state.
TAIL = 4000
# With less room than this on its disk a log is most likely cut off.
_ROOM = 16384
_SIGKILL = 9
# A container that is killed takes its ranks along: whoever watches it gets this long to say so first.
_SETTLE = 1.0


def log_path(plan: Plan, local: int, record: Dict[str, Any]) -> str:
    """Where a rank's log is: as its own record says, else where the launcher is expected to write it."""
    own = record.get("log")
    return os.path.join(plan.log_dir, own) if own else plan.log(local)


def find_log(plan: Plan, files: RunFiles, local: int) -> str:
    """`log_path` for whoever has no record yet."""
    expected = plan.log(local)
    if os.path.exists(expected):
        return expected
    record = read_json(files.rank(local))
    return log_path(plan, local, record if isinstance(record, dict) else {})


class Ranks:
    """Reads the rank records that changed; `states` is what the node's state says about its ranks."""

    def __init__(self, plan: Plan, files: RunFiles) -> None:
        self._plan = plan
        self._files = files
        self._seen: Dict[int, Tuple[int, int]] = {}
        self._records: Dict[int, Dict[str, Any]] = {}
        self._seen_alive: Dict[int, float] = {}
        self._tails: Dict[int, str] = {}
        self._outside: Dict[int, processes.Process] = {}

    def look(self) -> None:
        """Read what has changed since the last look."""
        for local in range(self._plan.processes):
            self._read(local)
            self._notice_killed_entry(local)

    @property
    def all_started(self) -> bool:
        """Every rank and server of the plan has started its script."""
        return all(state["started_at"] is not None for state in self._all())

    @property
    def all_ended(self) -> bool:
        """Every rank and server of the plan has started and ended."""
        return all(state["ended_at"] is not None for state in self._all())

    @property
    def none_runs(self) -> bool:
        """No script runs: each has ended, or was never started."""
        return all(state["started_at"] is None or state["ended_at"] is not None for state in self._all())

    def running(self) -> List[int]:
        """The pids of the scripts that run, as this host numbers them."""
        found = [
            state["pid"]
            for state in self.states()
            if state["pid"] and state["started_at"] is not None and state["ended_at"] is None
        ]
        # In a container what is known here is the entry, whose child the script is.
        return processes.children(found) if self._plan.container and found else found

    def times(self) -> Dict[str, str]:
        """Each log's path, by the path of the file that says when it grew."""
        return {
            self._files.times(local): log_path(self._plan, local, self._records.get(local, {}))
            for local in range(self._plan.processes)
        }

    def seen_last(self) -> float:
        """The time of something that ended every rank at once: just before they were seen for the last time.

        Now, where none runs. Otherwise a rank, which ended with the rest, would seem to have failed first.
        """
        running = [local for local, record in self._records.items() if record["ended_at"] is None]
        seen = [self._seen_alive[local] for local in running if local in self._seen_alive]
        return min(seen) - 0.001 if seen else time.time()

    def failure(self) -> Optional[Dict[str, Any]]:
        """The first failure of a rank or a server: a wrong world before anything else, then the earliest."""
        failed = [state for state in self._all() if _has_failed(state)]
        if not failed:
            return None
        first = min(failed, key=lambda state: (not state["refused"], state["ended_at"]))
        found = {
            "kind": "server" if "server" in first else "rank",
            "rank": first.get("rank"),
            "exit_code": first["exit_code"],
            "signal": first["signal"],
            "at": first["ended_at"],
            "detail": "",
        }
        if "server" in first:
            found.update(server=first["server"], detail=first["tail"].strip().rpartition("\n")[2][:300])
        if first["refused"]:
            found.update(kind=first["refused"]["kind"], detail=first["refused"]["detail"])
        return found

    def states(self) -> List[Dict[str, Any]]:
        """One dict a rank, in the order of local ranks."""
        return [dict(self._state(local), rank=rank) for local, rank in enumerate(self._plan.ranks)]

    def servers(self) -> List[Dict[str, Any]]:
        """One dict a parameter server, as for ranks but with `server` in the place of `rank`."""
        first = len(self._plan.ranks)
        return [
            dict(self._state(first + place), server=number) for place, number in enumerate(self._plan.servers)
        ]

    def _all(self) -> List[Dict[str, Any]]:
        return self.states() + self.servers()

    def _state(self, local: int) -> Dict[str, Any]:
        record = self._records.get(local, {})
        return {
            "local_rank": local,
            "pid": self._pid(local, record),
            "started_at": record.get("started_at"),
            "ended_at": record.get("ended_at"),
            "exit_code": record.get("exit_code"),
            "signal": record.get("signal"),
            "refused": record.get("failure"),
            "log": log_path(self._plan, local, record),
            "bytes": size_of(log_path(self._plan, local, record)),
            "tail": self._tails.get(local, ""),
        }

    def _read(self, local: int) -> None:
        path = self._files.rank(local)
        try:
            status = os.stat(path)
        except OSError:
            return
        version = (status.st_mtime_ns, status.st_ino)
        if self._seen.get(local) == version:
            return
        record = read_json(path)
        if not isinstance(record, dict):
            return
        self._seen[local] = version
        self._records[local] = record
        self._keep_tail(local)

    def _notice_killed_entry(self, local: int) -> None:
        """An entry that was killed cannot record its end; the script dies with it."""
        record = self._records.get(local)
        if record is None or record["ended_at"] is not None:
            return
        now = time.time()
        if self._is_alive(local, record):
            self._seen_alive[local] = now
            return
        if self._plan.container and now - self._seen_alive.get(local, now) < _SETTLE:
            return
        # What it wrote last is there by now.
        self._read(local)
        record = self._records[local]
        if record["ended_at"] is None:
            record.update(ended_at=self._seen_alive.get(local, now), signal=_SIGKILL)
            self._keep_tail(local)

    def _is_alive(self, local: int, record: Dict[str, Any]) -> bool:
        """Whether the entry runs. In a container it has another number, and is looked for once."""
        if self._plan.container is None:
            return processes.is_alive(record["pid"], record["born"])
        found = self._outside.get(local)
        if found is None or found.born != record["born"]:
            found = processes.outside(record["pid"], record["born"])
            if found is not None:
                self._outside[local] = found
        return found is not None and processes.is_alive(found.pid, found.born)

    def _pid(self, local: int, record: Dict[str, Any]) -> Optional[int]:
        """The script's process as this host numbers it; of one in a container its entry's."""
        if self._plan.container is None:
            return record.get("child") or record.get("pid")
        found = self._outside.get(local)
        return found.pid if found and record else None

    def _keep_tail(self, local: int) -> None:
        if _has_failed(self._state(local)):
            note = _full_disk(self._plan.log_dir)
            path = log_path(self._plan, local, self._records.get(local, {}))
            end = last_bytes(path, TAIL - len(note.encode("utf-8")))
            self._tails[local] = end.decode("utf-8", "replace") + note


def _full_disk(folder: str) -> str:
    """A line for the end of a log whose own last lines, the rank's error among them, found no room."""
    try:
        free = os.statvfs(folder)
    except OSError:
        return ""
    if free.f_bavail * free.f_frsize >= _ROOM:
        return ""
    return "\nclusterkit: the disk of %s is full; what the rank said at its end is not in its log\n" % folder


def _has_failed(state: Dict[str, Any]) -> bool:
    return state["ended_at"] is not None and (state["signal"] is not None or state["exit_code"] != 0)
