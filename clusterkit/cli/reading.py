"""What `clusterkit logs` does with the ranks it was asked for: show, follow, or write them to files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from clusterkit import logs
from clusterkit.cli.session import Access, run_remotes
from clusterkit.errors import ExitCode, Interrupted, NotFound
from clusterkit.interrupts import Interrupts
from clusterkit.remote.protocol import Remote
from clusterkit.report.launch import restart_line
from clusterkit.report.loglines import Form, LogLines, TimedLine
from clusterkit.report.status import size
from clusterkit.report.streaming import write_event
from clusterkit.report.terminal import Words, write_pieces
from clusterkit.runs import processes, times
from clusterkit.runs.events import Event
from clusterkit.runs.gathered import LONGEST_LINE, line_start, tail_offset
from clusterkit.runs.record import ENDED, RunRecord, RunStore, iso
from clusterkit.runs.watch import Watch

_PIECE = 1 << 18


class Reader:
    """The chosen ranks of one run; each method returns the command's exit code."""

    def __init__(
        self,
        store: RunStore,
        record: RunRecord,
        ranks: tuple[int, ...],
        inventory: str | None,
        access: Access,
        timeout: float,
        form: Form,
        *,
        attempt: int | None = None,
        since: float | None = None,
    ) -> None:
        self._store = store
        self._record = record
        self._ranks = ranks
        self._inventory = inventory
        self._access = access
        self._timeout = timeout
        self._lines = LogLines(record, form)
        self._json = form.as_json
        self._since = since
        # None: the newest there is, which a run that we do not follow may have begun without our knowing.
        self._wanted_attempt = attempt
        self._attempt = record.attempt if attempt is None else attempt
        self._words = Words(quiet=form.as_json)
        # The ranks whose logs are still to be shown side by side.
        self._side_by_side: list[int] = []

    def show(self, lines: int | None) -> int:
        """Print the logs, or their last lines."""
        missing = [rank for rank in self._ranks if not self._complete(rank)]
        is_over = self._record.state in ENDED or self._wanted_attempt is not None
        if missing and lines is not None and not is_over:
            return self._show_tails(lines)
        watch = self._refresh(missing) if missing else None
        found = [self._print(rank, lines, watch) for rank in self._ranks]
        self._merge(lines)
        if self._unreachable(watch, missing):
            return ExitCode.UNREACHABLE
        return ExitCode.OK if any(found) or len(self._ranks) > 1 else ExitCode.FAILED

    def follow(self, lines: int | None) -> int:
        """Print the last lines and stay until the run ends."""
        if all(self._complete(rank) for rank in self._ranks):
            return self.show(lines)
        silent = {self._record.node_of(rank).host for rank in self._ranks}

        def tell(event: Event) -> None:
            self._tell(event)
            host = event.data.get("host")
            if event.kind == "notice" and host in silent:
                self._show_gathered(str(host), lines)
            silent.discard(str(host))

        with Interrupts() as interrupts, run_remotes(self._record, self._inventory, self._access) as remotes:
            try:
                watch = logs.follow(
                    self._record,
                    self._ranks,
                    remotes,
                    lines,
                    interrupts,
                    tell,
                    self._lines.tick,
                    self._since,
                )
            except Interrupted as left:
                self._words.say(f"no longer following run {self._record.run_id}, which goes on by itself")
                return int(left.exit_code)
            finally:
                self._lines.flush()
        gone = self._unreachable(watch, self._ranks)
        for rank in gone:
            if self._record.node_of(rank).host in silent:
                self._print(rank, lines, watch)
        self._merge(lines)
        return ExitCode.UNREACHABLE if gone else ExitCode.OK

    def export(self, directory: Path) -> int:
        """Write the logs into a directory, every byte that can be had."""
        missing = [rank for rank in self._ranks if not self._complete(rank)]
        watch = self._refresh(missing) if missing else None
        written = logs.export(self._record, self._ranks, self._store, directory, self._attempt)
        for path in written.values():
            print(path)
        for rank in self._ranks:
            if rank not in written:
                self._say(logs.why_nothing(self._record, rank, watch))
        gone = self._unreachable(watch, missing)
        for rank in gone:
            if rank in written:
                self._say_gathered(rank, watch)
        return ExitCode.UNREACHABLE if gone else ExitCode.OK

    def _refresh(self, ranks: list[int]) -> Watch:
        self._words.progress("fetching what is new")
        with Interrupts() as interrupts, run_remotes(self._record, self._inventory, self._access) as remotes:
            watch = self._fetch(ranks, remotes, interrupts)
            newest = int(watch.decision.get("attempt", 0))
            if self._wanted_attempt is None and newest > self._attempt:
                self._attempt = newest
                watch = self._fetch(ranks, remotes, interrupts)
        self._words.clear()
        self._check_attempt(watch)
        return watch

    def _fetch(self, ranks: list[int], remotes: Mapping[str, Remote], interrupts: Interrupts) -> Watch:
        return logs.refresh(
            self._record,
            ranks,
            remotes,
            self._store,
            interrupts,
            self._notices,
            self._attempt,
            self._timeout,
        )

    def _check_attempt(self, watch: Watch) -> None:
        """Raise NotFound for an attempt that there never was."""
        newest = max(int(watch.decision.get("attempt", 0)), self._record.attempt)
        if self._attempt > newest:
            raise NotFound(
                f"run {self._record.run_id} has no attempt {self._attempt}: its attempts are 0-{newest}",
                "leave --attempt out to see the last one",
            )

    def _complete(self, rank: int) -> bool:
        return logs.complete(self._record, self._store, rank, self._attempt)

    def _show_tails(self, lines: int) -> int:
        def tell(event: Event) -> None:
            self._tell(event) if event.kind == "line" else self._notices(event)

        self._words.progress("asking the hosts")
        with Interrupts() as interrupts, run_remotes(self._record, self._inventory, self._access) as remotes:
            watch = logs.tails(self._record, self._ranks, remotes, lines, interrupts, tell, self._timeout)
        self._words.clear()
        self._lines.flush()
        gone = self._unreachable(watch, self._ranks)
        for rank in gone:
            self._print(rank, lines, watch)
        self._merge(lines)
        return ExitCode.UNREACHABLE if gone else ExitCode.OK

    def _show_gathered(self, host: str, lines: int | None) -> None:
        """What was gathered before of a host's ranks, if anything was."""
        for rank in self._ranks:
            if self._record.node_of(rank).host == host and self._gathered(rank):
                self._words.say(
                    f"{processes.words(rank)} on {host}: this is what was gathered before "
                    f"({self._amount(rank)})",
                    "yellow",
                )
                self._copy(rank, lines)
        self._merge(lines)

    def _print(self, rank: int, lines: int | None, watch: Watch | None) -> bool:
        """Print a rank's gathered log, or say why there is none; True if there is one."""
        if not self._gathered(rank):
            self._say(logs.why_nothing(self._record, rank, watch))
            return False
        if rank in self._unreachable(watch, [rank]):
            self._say_gathered(rank, watch)
        self._copy(rank, lines)
        return True

    def _copy(self, rank: int, lines: int | None) -> None:
        """Show a rank's gathered log, or its last lines; where equal lines are folded, `_merge` does it."""
        if self._lines.form.folded:
            self._side_by_side.append(rank)
            return
        if self._lines.form.is_file:
            with self._opened(rank, lines) as file:
                write_pieces(iter(lambda: file.read(_PIECE), b""))
            return
        host = self._record.node_of(rank).host
        whose = {**processes.keys(rank), "host": host, "attempt": self._attempt}
        for line, written_at in self._lines_of(rank, lines):
            self._lines.show({**whose, "written_at": written_at, "bytes": line})

    def _merge(self, lines: int | None) -> None:
        ranks, self._side_by_side = self._side_by_side, []
        self._lines.show_merged({rank: self._lines_of(rank, lines) for rank in ranks})

    def _lines_of(self, rank: int, lines: int | None) -> Iterator[TimedLine]:
        written = times.kept(self._store.log(self._record.run_id, rank, self._attempt))
        with self._opened(rank, lines) as file:
            if self._since is not None:
                file.seek(max(file.tell(), line_start(file, written.before(self._since))))
            position = file.tell()
            # A line without an end must not fill the memory.
            for line in iter(lambda: file.readline(LONGEST_LINE), b""):
                position += len(line)
                yield line.removesuffix(b"\n"), iso(written.at(position - 1))

    def _opened(self, rank: int, lines: int | None) -> BinaryIO:
        path = self._store.log(self._record.run_id, rank, self._attempt)
        file = open(path, "rb")  # noqa: SIM115 - whoever asked closes it
        file.seek(0 if lines is None else tail_offset(path, lines))
        return file

    def _gathered(self, rank: int) -> int:
        """How many bytes of a rank's log are here."""
        path = self._store.log(self._record.run_id, rank, self._attempt)
        return path.stat().st_size if path.exists() else 0

    def _amount(self, rank: int) -> str:
        count = self._gathered(rank)
        return size(count) if count >= 1000 else f"{count} bytes"

    def _say_gathered(self, rank: int, watch: Watch | None) -> None:
        host = self._record.node_of(rank).host
        why = watch.observed[host].error if watch else "not asked"
        self._say(
            f"{processes.words(rank)} on {host}: this is what was gathered before ({self._amount(rank)}), "
            f"the host does not answer: {why}"
        )

    def _say(self, text: str) -> None:
        """A sentence about the logs, apart from them."""
        if self._json:
            write_event(Event("notice", self._record.run_id, {"text": text}))
        else:
            self._words.say(text, "yellow")

    def _unreachable(self, watch: Watch | None, ranks: Sequence[int]) -> list[int]:
        """The ranks whose host was asked and did not answer."""
        if watch is None:
            return []
        return [rank for rank in ranks if not watch.observed[self._record.node_of(rank).host].reachable]

    def _tell(self, event: Event) -> None:
        if event.kind == "line":
            with self._words.aside():
                self._lines.show(event.data)
        elif event.kind == "notice":
            self._say(str(event.data["text"]))
        elif event.kind == "restarted":
            self._restarted(event)

    def _restarted(self, event: Event) -> None:
        if self._json:
            write_event(event)
        else:
            self._words.say(restart_line(event.data), "yellow")

    def _notices(self, event: Event) -> None:
        """Notices about a host are left to the end, where each rank of it is accounted for."""
        if event.kind == "notice" and "host" not in event.data:
            self._say(str(event.data["text"]))
