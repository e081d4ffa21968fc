"""A run that is watched: drawn again and again on a terminal, or a line for each change elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from clusterkit.report.status import end_of, status_lines, step_of


class Screen:
    """Shows one status document after the other on stdout."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def show(self, status: Mapping[str, Any]) -> None:
        """The run as it stands now."""
        if sys.stdout.isatty():
            self._draw(status)
            return
        now = time.strftime("%H:%M:%S", time.gmtime())
        for key, text in _facts(status).items():
            if self._last.get(key) != text:
                self._last[key] = text
                print(f"{now} {text}", flush=True)

    def clear(self) -> None:
        """Room for the first picture."""
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[2J")

    def _draw(self, status: Mapping[str, Any]) -> None:
        room = shutil.get_terminal_size()
        shown = [line[: room.columns] for line in status_lines(status)][: room.lines - 1]
        # Home, each line with what stood behind it wiped, then what stood below.
        sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
        sys.stdout.flush()


def _facts(status: Mapping[str, Any]) -> dict[str, str]:
    """What is worth a line when it changes; not the ages and sizes, which change all the time."""
    facts = {"run": f"run {status['run_id']} {status['state']}"}
    for node in status["nodes"]:
        why = f": {node['error']}" if node["error"] else ""
        facts[f"node {node['node_rank']}"] = f"{node['host']} {node['state']}{why}"
    for rank in status["ranks"]:
        words = [f"rank {rank['rank']} {rank['host']}", step_of(rank), end_of(rank)]
        facts[f"rank {rank['rank']}"] = " ".join(word for word in words if word)
    return facts
