"""Events as `--json` prints them: one object a line."""

from __future__ import annotations

from clusterkit.report.terminal import write_bytes
from clusterkit.runs.events import Event


def write_event(event: Event) -> None:
    """One line of JSON on stdout; a log line's undecodable bytes are replaced. Raises ReaderGone."""
    if event.kind == "line":
        text = event.data["bytes"].decode("utf-8", "replace")
        data = {key: value for key, value in event.data.items() if key != "bytes"}
        event = Event(event.kind, event.run_id, {**data, "line": text}, event.time)
    write_bytes(event.as_json().encode() + b"\n")
