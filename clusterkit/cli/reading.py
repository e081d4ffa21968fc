"""What `clusterkit logs` does with the ranks it was asked for: show, follow, or write them to files."""

from __future__ import annotations

from pathlib import Path

from clusterkit import logs
from clusterkit.cli.session import Access, run_remotes
from clusterkit.errors import ExitCode
from clusterkit.events import Event
from clusterkit.gathered import tail_offset
from clusterkit.interrupts import Interrupts
from clusterkit.report.launch import show_line
from clusterkit.report.terminal import Words, write_bytes
from clusterkit.runs import ENDED, RunRecord, RunStore
from clusterkit.watch import Watch


class Reader:
    """The chosen ranks of one run; each method returns the command's exit code."""

    def __init__(
        self,
        store: RunStore,
        record: RunRecord,
        ranks: tuple[int, ...],
        inventory: str | None,
        access: Access,
    ) -> None:
        self._store = store
        self._record = record
        self._ranks = ranks
        self._inventory = inventory
        self._access = access
        self._words = Words()

    def show(self, lines: int | None) -> int:
        """Print the logs, or their last lines."""
        missing = [rank for rank in self._ranks if not logs.complete(self._record, self._store, rank)]
        if missing and lines is not None and self._record.state not in ENDED:
            return self._show_tails(lines)
        watch = self._refresh(missing) if missing else None
        found = [self._print(rank, lines, watch) for rank in self._ranks]
        return ExitCode.OK if any(found) or len(self._ranks) > 1 else ExitCode.FAILED

    def follow(self, lines: int | None) -> int:
        """Print the last lines and stay until the run ends."""
        if all(logs.complete(self._record, self._store, rank) for rank in self._ranks):
            return self.show(lines)
        with Interrupts() as interrupts, run_remotes(self._record, self._inventory, self._access) as remotes:
            logs.follow(self._record, self._ranks, remotes, lines, interrupts, self._tell)
        return ExitCode.OK

    def export(self, directory: Path) -> int:
        """Write the logs into a directory, every byte that can be had."""
        missing = [rank for rank in self._ranks if not logs.complete(self._record, self._store, rank)]
        watch = self._refresh(missing) if missing else None
        written = logs.export(self._record, self._ranks, self._store, directory)
        for path in written.values():
            print(path)
        for rank in self._ranks:
            if rank not in written:
                self._words.say(logs.why_nothing(self._record, rank, watch), "yellow")
        return ExitCode.UNREACHABLE if self._report_unreachable(watch, missing) else ExitCode.OK

    def _refresh(self, ranks: list[int]) -> Watch:
        self._words.progress("fetching what is new")
        with Interrupts() as interrupts, run_remotes(self._record, self._inventory, self._access) as remotes:
            watch = logs.refresh(self._record, ranks, remotes, self._store, interrupts, self._notices)
        self._words.clear()
        return watch

    def _show_tails(self, lines: int) -> int:
        with Interrupts() as interrupts, run_remotes(self._record, self._inventory, self._access) as remotes:
            watch = logs.tails(self._record, self._ranks, remotes, lines, interrupts, self._tell)
        return ExitCode.UNREACHABLE if self._report_unreachable(watch, self._ranks) else ExitCode.OK

    def _print(self, rank: int, lines: int | None, watch: Watch | None) -> bool:
        path = self._store.log(self._record.run_id, rank)
        if not path.exists() or path.stat().st_size == 0:
            self._words.say(logs.why_nothing(self._record, rank, watch), "yellow")
            return False
        host = self._record.node_of(rank).host
        if watch is not None and not watch.observed[host].reachable:
            gathered = f"this is what was gathered before ({path.stat().st_size} bytes)"
            self._words.say(f"rank {rank}: {host} does not answer; {gathered}", "yellow")
        with open(path, "rb") as file:
            file.seek(0 if lines is None else tail_offset(path, lines))
            if len(self._ranks) == 1:
                while data := file.read(1 << 18):
                    write_bytes(data)
            else:
                for line in file:
                    show_line({"rank": rank, "host": host, "bytes": line.rstrip(b"\n")})
        return True

    def _report_unreachable(self, watch: Watch | None, ranks: list[int] | tuple[int, ...]) -> bool:
        """Name the ranks whose host did not answer; True if there are any."""
        if watch is None:
            return False
        gone = [rank for rank in ranks if not watch.observed[self._record.node_of(rank).host].reachable]
        for rank in gone:
            host = self._record.node_of(rank).host
            self._words.say(
                f"rank {rank} is incomplete: {host} does not answer ({watch.observed[host].error})", "yellow"
            )
        return bool(gone)

    def _tell(self, event: Event) -> None:
        if event.kind == "line" and len(self._ranks) == 1:
            write_bytes(event.data["bytes"] + b"\n")
        elif event.kind == "line":
            show_line(event.data)
        else:
            self._notices(event)

    def _notices(self, event: Event) -> None:
        if event.kind == "notice":
            self._words.say(str(event.data["text"]), "yellow")
