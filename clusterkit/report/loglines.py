"""Log lines on stdout: the chosen ones, each with its rank and host, or equal ones of many ranks as one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusterkit.report import alike
from clusterkit.report.folding import fold
from clusterkit.report.sieve import Choice, Sieve, highlighted
from clusterkit.report.streaming import write_event
from clusterkit.report.terminal import rank_colour, write_bytes, write_line
from clusterkit.runs import processes
from clusterkit.runs.events import Event
from clusterkit.runs.record import RunRecord
from clusterkit.runs.selection import fold_ranks

# A line without its newline, and when it was written (ISO 8601, UTC), as far as that is known.
TimedLine = tuple[bytes, str | None]

# For how long lines that come in are held, so that the same one of other ranks can join them.
HOLD_S = 1.0


@dataclass(frozen=True)
class Form:
    """How lines are shown: `alone` is one process's, without a prefix; `folded` is equal ones as one.

    `since` is a time as `written_at` of the events has it: lines that are known to be older are not shown.
    """

    choice: Choice = field(default_factory=Choice)
    alone: bool = False
    folded: bool = False
    timestamps: bool = False
    since: str | None = None
    as_json: bool = False

    @property
    def is_file(self) -> bool:
        """True if what is shown of a log is its bytes, as they are."""
        every_line = self.choice.everything and self.since is None
        return self.alone and every_line and not (self.as_json or self.timestamps)


class LogLines:
    """Shows the lines of a run's processes; all methods raise ReaderGone where nobody reads any more."""

    def __init__(self, record: RunRecord, form: Form) -> None:
        self.form = form
        self._record = record
        self._sieve = Sieve(form.choice)
        self._window = alike.Window()
        self._held_since: float | None = None

    def show(self, data: Mapping[str, Any]) -> None:
        """One line, as an event of the kind `line` holds it, if it is a chosen one."""
        process = data["rank"] if "rank" in data else processes.server(data["server"])
        line = self._prepared(process, data["bytes"], data.get("written_at"))
        if line is None:
            return
        if self.form.as_json:
            write_event(Event("line", self._record.run_id, data))
        elif self.form.alone:
            write_bytes(self._marked(line) + b"\n")
        elif self.form.folded:
            self._window.take(process, line)
            self._held_since = self._held_since or time.monotonic()
            self.tick()
        else:
            self._line(alike.Alike((process,), line))

    def tick(self) -> None:
        """What has been held for long enough is shown."""
        if self._held_since is not None and time.monotonic() - self._held_since > HOLD_S:
            self.flush()

    def flush(self) -> None:
        """Nothing is held any more."""
        self._held_since = None
        for each in self._window.flush():
            self._line(each)

    def show_merged(self, logs: Mapping[int, Iterable[TimedLine]]) -> None:
        """Whole logs of several processes, equal lines as one."""
        chosen = {process: self._chosen(process, lines) for process, lines in logs.items()}
        for each in alike.merged(chosen):
            self._line(each)

    def _chosen(self, process: int, lines: Iterable[TimedLine]) -> Iterator[bytes]:
        for line, written_at in lines:
            prepared = self._prepared(process, line, written_at)
            if prepared is not None:
                yield prepared

    def _prepared(self, process: int, line: bytes, written_at: str | None) -> bytes | None:
        """The line as it is shown, but for its prefix; None if it is not one of the chosen."""
        # First of all: a line may get its level from one before it that is not shown.
        if not self._sieve.lets_through(process, line):
            return None
        if self.form.since and written_at and written_at < self.form.since:
            return None
        return stamp(written_at).encode() + b" " + line if self.form.timestamps else line

    def _line(self, each: alike.Alike) -> None:
        hosts = fold(self._record.node_of(process).host for process in each.processes)
        prefix = f"[{_numbers(each.processes)} {hosts}]"
        write_line(prefix, rank_colour(each.processes[0]), self._marked(each.line))

    def _marked(self, line: bytes) -> bytes:
        patterns = self.form.choice.highlight
        return highlighted(line, patterns) if patterns and sys.stdout.isatty() else line


def stamp(written_at: str | None) -> str:
    """A line's time as `--timestamps` shows it: UTC, to the tenth of a second; blanks if it is not known."""
    return " " * 22 if written_at is None else f"{written_at[:21]}Z"


def _numbers(chosen: Sequence[int]) -> str:
    """`0-3,7`, `server 0-1`."""
    ranks = [process for process in chosen if process >= 0]
    servers = sorted(number for each in chosen if (number := processes.server_number(each)) is not None)
    return ",".join(filter(None, [fold_ranks(ranks), f"server {fold_ranks(servers)}" if servers else ""]))
