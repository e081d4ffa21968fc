"""Take the frames of a followed run: keep what was observed, gather log bytes, and tell what happened.

One `Watch` serves `launch` (from the start, all ranks) and `logs --follow` (attached later, some ranks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clusterkit.errors import named
from clusterkit.runs import processes
from clusterkit.runs.events import Event
from clusterkit.runs.follow import Frame
from clusterkit.runs.gathered import GatheredLogs, Lines
from clusterkit.runs.record import RunRecord
from clusterkit.runs.status import Observed, decision, document

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
        self._told: set[tuple[str, str]] = set()
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
        if state.get("started_at"):
            self._once("started", frame.host, {"host": frame.host, "node_rank": state["node_rank"]})
        ranks = state.get("ranks", [])
        processes_here = ranks + state.get("servers", [])
        if processes_here and all(each.get("started_at") for each in processes_here):
            self._once("joined", frame.host, {"host": frame.host, "ranks": [rank["rank"] for rank in ranks]})
        failure = state.get("failure")
        if failure and self.decision["phase"] != "gate":
            self._once("failed", frame.host, {"host": frame.host, **failure})

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
        for line in self._lines.feed(file, frame.payload):
            self._tell_line(file, line)

    def _tell_line(self, file: str, line: bytes) -> None:
        process = processes.of_log(file)
        if process is None:
            return
        whose = {**processes.keys(process), "host": self.record.node_of(process).host}
        self._tell(Event("line", self.record.run_id, {**whose, "bytes": line}))

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
    """The gathered file that a log frame belongs to: a rank's number, or `launcher-HOST`."""
    file = str(frame.header["file"])
    return f"{LAUNCHER}-{frame.host}" if file == LAUNCHER else file
