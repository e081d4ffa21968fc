"""What a launch tells while it goes on: one event at a time, for the terminal and for `--json` alike."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterkit.runs.record import iso


@dataclass(frozen=True)
class Event:
    """One thing that happened to a run. `data` holds the keys of its kind (docs/json.md).

    The kind `progress` is for people alone, and never in JSON.
    """

    kind: str
    run_id: str
    data: Mapping[str, Any] = field(default_factory=dict)
    time: float = field(default_factory=time.time)

    def as_json(self) -> str:
        """The event as one line of JSON."""
        return json.dumps({"event": self.kind, "time": iso(self.time), "run_id": self.run_id, **self.data})
