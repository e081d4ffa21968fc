"""What `preflight` and `reset` share: read, show what would be done, ask, do it."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from clusterkit import inventory as inventories
from clusterkit import preflight, reset, tables
from clusterkit.between import groups_of
from clusterkit.cli.session import Access, members, remotes_of
from clusterkit.errors import ClusterkitError, ExitCode, worst
from clusterkit.interrupts import Interrupts
from clusterkit.inventory.model import Inventory
from clusterkit.preflight import Reading, Target
from clusterkit.probes import RUNS
from clusterkit.proving import Proofs, Result, Wanted, prove
from clusterkit.remote import Remote
from clusterkit.report import changes, problems
from clusterkit.report import preflight as report
from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words
from clusterkit.reset import Undoing
from clusterkit.steps.applying import Applied
from clusterkit.steps.engine import Permissions

# How soon a signal is noticed while an answer is waited for.
_LOOK_S = 0.1


@contextmanager
def converging(
    inventory: str | None,
    limit: str | None,
    access: Access,
    forks: int,
    *,
    quiet: bool = False,
    permissions: Permissions | None = None,
) -> Iterator[Converge]:
    """The inventory's hosts, ready to be read and changed, with connections that are closed at the end."""
    # Sentences about the way on stderr; what came out, with --json nothing but the document, on stdout.
    words, results = Words(quiet=quiet), Words(sys.stdout, quiet=quiet)
    everybody = members(inventory, None, words)
    chosen = members(inventory, limit, Words(quiet=True)) if limit else everybody
    hosts = tuple(each.alias for each in chosen.settings)
    target = Target(everybody.settings, hosts, _site_tables(), permissions or Permissions())
    with Interrupts() as interrupts, remotes_of(target.members, access, words) as remotes:
        yield Converge(everybody.inventory, target, remotes, words, results, interrupts, forks)


def _site_tables() -> tables.Tables:
    """The shipped tables with what `clusterkit.toml` names over them, so that a slip there shows at once."""
    return tables.load(*(inventories.project_file(Path.cwd(), key) for key in ("driver_table", "xid_table")))


class Converge:
    """One target, and the person who may be asked."""

    def __init__(
        self,
        inventory: Inventory,
        target: Target,
        remotes: Mapping[str, Remote],
        words: Words,
        results: Words,
        interrupts: Interrupts,
        forks: int,
    ) -> None:
        self._inventory = inventory
        self._target = target
        self._remotes = remotes
        self._words = words
        self._results = results
        self._interrupts = interrupts
        self._forks = forks
        self._plan_shown = False

    def preflight(self, wanted: Wanted, *, yes: bool, diff: bool) -> Result:
        """Read, apply what is pending if that is wanted, prove it."""
        begun = time.monotonic()
        reading = self._read()
        applied: dict[str, Applied] = {}
        if reading.hosts_with_changes and not wanted.check and self._may(yes, self._plan(reading, yes, diff)):
            reading, applied = preflight.apply(
                self._target, reading, self._remotes, self._forks, self._interrupts.cancel, self._doing
            )
        agreed = bool(applied) or not reading.hosts_with_changes
        proofs = self._prove(reading, replace(wanted, check=wanted.check or not agreed))
        self._words.clear()
        return Result(reading, applied, proofs, time.monotonic() - begun)

    def show(self, result: Result, details: report.Details) -> None:
        """The report for people; the commands of a plan that a person has just seen are not shown again."""
        commands = details.diff and not self._plan_shown
        report.show(self._results, result, replace(details, commands=commands))

    def _prove(self, reading: Reading, wanted: Wanted) -> Proofs:
        return prove(
            self._inventory.path.resolve(),
            self._target,
            reading,
            groups_of(self._inventory),
            self._remotes,
            wanted,
            self._interrupts,
            self._doing,
        )

    def reset(self, *, check: bool, yes: bool) -> int:
        """Take back what preflight left; the exit code."""
        reading = self._read()
        self._words.clear()
        self._refuse_while_running(reading)
        undoing = reset.plan(reading, self._target.hosts)
        lines = changes.undo_lines(undoing)
        missed = self._not_looked_at(reading, undoing)
        if not lines:
            where = " that could be looked at" if missed else ""
            self._results.insist(f"preflight has left nothing on the hosts{where}")
            return missed
        if check or not (yes or self._asks):
            for line in ("would take back:", *lines):
                self._results.say(line)
        if check or not self._may(yes, ["taking back:" if yes else "would take back:", *lines]):
            return missed or ExitCode.PENDING
        done, failed = reset.apply(undoing, self._remotes, self._forks, self._interrupts.cancel, self._doing)
        self._words.clear()
        return worst([self._told(done, failed), missed])

    def _not_looked_at(self, reading: Reading, undoing: Undoing) -> int:
        """Name the hosts, and the steps on hosts, of which it is not known what they have; the exit code."""
        for error in reading.unreachable.values():
            problems.show(error, words=self._results)
        groups: dict[tuple[str, str], list[str]] = {}
        for host, of_host in undoing.unread.items():
            for name, why in of_host.items():
                groups.setdefault((name, why), []).append(host)
        for (name, why), hosts in groups.items():
            self._results.insist(f"{fold(hosts)}: {name} could not be looked for: {why}", "red")
        unreachable = ExitCode.UNREACHABLE if reading.unreachable else ExitCode.OK
        return worst([unreachable, ExitCode.FAILED if groups else ExitCode.OK])

    def _told(self, done: Mapping[str, Applied], failed: Mapping[str, ClusterkitError]) -> int:
        again = reset.plan(self._read(), self._target.hosts)
        self._words.clear()
        for host in again.hosts:
            for name in again.lines[host]:
                why = done[host].words(name) if host in done else ""
                self._results.insist(f"{host}: {name} {'failed: ' + why if why else 'is still there'}", "red")
        for error in failed.values():
            problems.show(error, words=self._results)
        if again.hosts or failed:
            return ExitCode.FAILED
        self._results.insist(f"taken back on {fold(done)}", "green")
        return ExitCode.OK

    def _refuse_while_running(self, reading: Reading) -> None:
        for host, facts in reading.fleet.facts.items():
            runs = facts.get(RUNS)
            if host in self._target.hosts and runs and runs.live:
                raise ClusterkitError(
                    f"run {runs.live[0].run_id} is alive on {host}, and may need what would be taken back",
                    f"end it first: clusterkit stop {runs.live[0].run_id}",
                )

    def _read(self) -> Reading:
        return preflight.read(self._target, self._remotes, self._forks, self._interrupts.cancel, self._doing)

    def _plan(self, reading: Reading, yes: bool, diff: bool) -> list[str]:
        """What is agreed to; without somebody who could, the report has it."""
        if not (yes or self._asks):
            return []
        head = "changing" if yes else "would change"
        shown = f"{head}:" if diff else f"{head} (--diff shows the commands):"
        return [shown, *changes.plan_lines(reading.verdicts, commands=diff)]

    @property
    def _asks(self) -> bool:
        """True if there is a person at a terminal to answer."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def _may(self, yes: bool, lines: Sequence[str]) -> bool:
        """Show what would be done, and have it agreed to: by `--yes`, or by the person at the terminal."""
        self._words.clear()
        self._plan_shown = yes or self._asks
        if yes:
            for line in lines:
                self._words.say(line)
            return True
        if not self._asks:
            self._words.say(
                "nothing was changed: there is no terminal to ask on (--yes does it without asking)"
            )
            return False
        for line in lines:
            # Who is asked sees what for, also with --json: this is not stdout.
            self._words.insist(line)
        sys.stderr.write("Go ahead? [y/N] ")
        sys.stderr.flush()
        agreed = self._answer() in ("y", "yes")
        if not agreed:
            self._words.insist("nothing was changed")
        return agreed

    def _answer(self) -> str:
        """The line that the person types. Raises Interrupted: Ctrl-C is an answer too."""
        while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
            if self._interrupts.count:
                sys.stderr.write("\n")
            self._interrupts.check()
        return sys.stdin.readline().strip().lower()

    def _doing(self, what: str, waiting: Sequence[str]) -> None:
        if waiting:
            self._words.progress(f"{what}: waiting for {fold(waiting)}")
