"""Take the frames of a followed run: keep what was observed, gather log bytes, and tell what happened.

One `Watch` serves `launch` (from the start, all ranks) and `logs --follow` (attached later, some ranks).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clusterkit.errors import named
from clusterkit.runs import processes
from clusterkit.runs.events import Event
from clusterkit.runs.follow import Frame
from clusterkit.runs.gathered import GatheredLogs, Lines
from clusterkit.runs.record import RunRecord, RunStore, iso
from clusterkit.runs.status import Observed, decision, document, reason
from clusterkit.runs.times import Written

Tell = Callable[[Event], None]

LAUNCHER = "launcher"


class Watch:
    """The run as seen through its frames."""

    def __init__(self, record: RunRecord, logs: GatheredLogs | None, tell: Tell) -> None:
        self.record = record
        self.observed: dict[str, Observed] = {node.host: Observed(None) for node in record.nodes}
        self.finished: set[str] = set()
        self._logs = logs
        self._lines = Lines()
        self._clock_offsets = {node.host: node.clock_offset_s for node in record.nodes}
        self._told: set[tuple[str, str]] = set()
        self._attempt: int | None = None
        self._tell = tell

    def take(self, frame: Frame) -> None:
        """Account for one frame."""
        handlers = {
            "state": self._state,
            "log": self._log,
            "error": self._error,
            "end": self._end,
            "unobserved": self._unobserved,
            "observed": self._observed,
        }
        handler = handlers.get(frame.kind)
        if handler is not None:
            handler(frame)

    def status(self) -> dict[str, Any]:
        """The status document as of now."""
        return document(self.record, self.observed)

    @property
    def decision(self) -> Mapping[str, Any]:
        """The furthest decision seen."""
        return decision(self.observed, self.record)

    def state(self, host: str) -> Mapping[str, Any]:
        """A host's last state; empty if it never answered."""
        return self.observed[host].state or {}

    def settled(self) -> bool:
        """True once the run is decided and every host has sent its last byte, or cannot be reached."""
        return self.decision["phase"] == "done" and all(
            node.host in self.finished or not self.observed[node.host].reachable for node in self.record.nodes
        )

    def close(self) -> None:
        """Tell the last lines, those without a newline at their end."""
        for file, line in self._lines.rest():
            self._tell_line(file, line)

    def _state(self, frame: Frame) -> None:
        state = frame.header["state"]
        self.observed[frame.host] = Observed(state)
        self._notice_restart()
        self._notice_hang(self.decision.get("hang"))
        key = f"{state.get('attempt', 0)} {frame.host}"
        if state.get("started_at"):
            self._once("started", key, {"host": frame.host, "node_rank": state["node_rank"]})
        ranks = state.get("ranks", [])
        processes_here = ranks + state.get("servers", [])
        if processes_here and all(each.get("started_at") for each in processes_here):
            self._once("joined", key, {"host": frame.host, "ranks": [rank["rank"] for rank in ranks]})
        failure = state.get("failure")
        if failure and self.decision["phase"] != "gate":
            self._once("failed", key, {"host": frame.host, **failure})

    def _notice_restart(self) -> None:
        """Tell each attempt that began since the first one that was seen here, and what it is for."""
        decided = self.decision
        attempt = int(decided.get("attempt", 0))
        seen, self._attempt = self._attempt, attempt
        for ended in decided.get("history", []):
            if seen is not None and seen <= ended["attempt"]:
                self._tell(
                    Event(
                        "restarted",
                        self.record.run_id,
                        restarted(ended["attempt"] + 1, ended["cause"], ended.get("wait", 0.0)),
                    )
                )

    def _notice_hang(self, hang: Mapping[str, Any] | None) -> None:
        if hang:
            silence = f"wrote nothing for {hang['silent_s']:g} s"
            text = (
                f"the job hangs: ranks {hang['ranks']}, all that run, {silence}; "
                "`clusterkit stacks` shows where they stand"
            )
            self._once("notice", f"hang {hang['since']}", {"text": text})

    def _log(self, frame: Frame) -> None:
        file = _key(frame)
        if frame.header.get("truncated") and self._logs is not None:
            self._logs.truncate(file)
        if self._logs is not None:
            try:
                self._logs.write(file, int(frame.header["offset"]), frame.payload)
            except OSError as error:
                self._once(
                    "notice",
                    f"disk {error.errno}",
                    {"text": f"logs are no longer gathered here: {error.strerror}"},
                )
                self._logs = None
        written = self._note_times(file, frame)
        for end, line in self._lines.feed(file, frame.payload, int(frame.header["offset"])):
            self._tell_line(file, line, written.at(end - 1))

    def _note_times(self, file: str, frame: Frame) -> Written:
        """When the bytes of this frame were written, by this machine's clock; kept with the gathered log."""
        offset = self._clock_offsets.get(frame.host, 0.0)
        entries = [(int(end), float(at) - offset) for end, at in frame.header.get("times", ())]
        written = Written()
        written.add(entries)
        if self._logs is not None and entries:
            with contextlib.suppress(OSError):
                # The last one may stand for what is still to come: only what has come is kept.
                end = int(frame.header["offset"]) + len(frame.payload)
                self._logs.note(file, [(min(each, end), at) for each, at in entries])
        return written

    def _tell_line(self, file: str, line: bytes, at: float | None = None) -> None:
        attempt, name = _split(file)
        process = processes.of_log(name)
        if process is None:
            return
        whose = {**processes.keys(process), "host": self.record.node_of(process).host}
        data = {**whose, "attempt": attempt, "written_at": None if at is None else iso(at), "bytes": line}
        self._tell(Event("line", self.record.run_id, data))

    def _error(self, frame: Frame) -> None:
        message = str(frame.header.get("message", "unknown"))
        self.observed[frame.host] = Observed(self.observed[frame.host].state, message)
        self.finished.add(frame.host)

    def _end(self, frame: Frame) -> None:
        self.finished.add(frame.host)

    def _unobserved(self, frame: Frame) -> None:
        message = str(frame.header.get("message", "no answer"))
        before = self.observed[frame.host]
        self.observed[frame.host] = Observed(before.state, message)
        if before.reachable and not self._is_lost(frame.host):
            words = "this says nothing about its training, trying again"
            text = f"unobserved: {named(frame.host, message)}; {words}"
            self._tell(Event("notice", self.record.run_id, {"host": frame.host, "text": text}))

    def _is_lost(self, host: str) -> bool:
        """True if the run was ended because this host is gone: no news that it does not answer."""
        cause = self.decision.get("cause") or {}
        return cause.get("kind") == "lost" and cause.get("alias") == host

    def _observed(self, frame: Frame) -> None:
        self.observed[frame.host] = Observed(self.observed[frame.host].state)
        self._tell(
            Event(
                "notice", self.record.run_id, {"host": frame.host, "text": f"{frame.host} is observed again"}
            )
        )

    def _once(self, kind: str, key: str, data: Mapping[str, Any]) -> None:
        if (kind, key) not in self._told:
            self._told.add((kind, key))
            self._tell(Event(kind, self.record.run_id, data))


def _key(frame: Frame) -> str:
    """The gathered file that a log frame belongs to (`gathered_log` has its path)."""
    file = str(frame.header["file"])
    name = f"{LAUNCHER}-{frame.host}" if file == LAUNCHER else file
    return log_key(name, int(frame.header.get("attempt", 0)))


def log_key(name: str, attempt: int) -> str:
    """A gathered file's name in one run: `3` or `launcher-HOST`, of a further attempt `1:3`."""
    return f"{attempt}:{name}" if attempt else name


def gathered_log(store: RunStore, run_id: str, key: str) -> Path:
    """The path of a gathered file by its `log_key`."""
    attempt, name = _split(key)
    process = processes.of_log(name)
    if process is not None:
        return store.log(run_id, process, attempt)
    return store.launcher_log(run_id, name.removeprefix(f"{LAUNCHER}-"), attempt)


def _split(key: str) -> tuple[int, str]:
    """The attempt and the name of a `log_key`; no name begins with digits and a colon."""
    attempt, colon, name = key.partition(":")
    return (int(attempt), name) if colon and attempt.isdecimal() else (0, key)


def restarted(attempt: int, cause: Mapping[str, Any], wait: float = 0.0) -> dict[str, Any]:
    """What the event `restarted` says: the attempt that begins, and what ended the one before it."""
    return {
        "attempt": attempt,
        "wait_s": wait,
        "reason": reason(cause),
        "host": cause.get("alias"),
        "rank": cause.get("rank"),
        **({"server": cause["server"]} if "server" in cause else {}),
        "exit_code": cause.get("exit_code"),
        "signal": cause.get("signal"),
    }
