"""What `preflight` and `reset` share: read, show what would be done, ask, do it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from clusterkit import preflight, reset
from clusterkit.between import groups_of
from clusterkit.cli.asking import agreed, asks
from clusterkit.cli.session import Access, members, remotes_of, site_tables
from clusterkit.errors import ClusterkitError
from clusterkit.interrupts import Interrupts
from clusterkit.inventory.model import Inventory
from clusterkit.preflight import Reading, Target
from clusterkit.probes import RUNS
from clusterkit.proving import Proofs, Result, Wanted, prove
from clusterkit.remote import Remote
from clusterkit.report import changes
from clusterkit.report import preflight as report
from clusterkit.report import reset as reset_report
from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words
from clusterkit.reset import Reset
from clusterkit.steps.applying import Applied
from clusterkit.steps.engine import Permissions


@dataclass(frozen=True)
class Manner:
    """How hosts are read and changed: so many at once, `timeout` seconds for reading one, what is allowed."""

    forks: int
    timeout: float
    quiet: bool = False
    permissions: Permissions = field(default_factory=Permissions)


@contextmanager
def converging(
    inventory: str | None, limit: str | None, access: Access, manner: Manner
) -> Iterator[Converge]:
    """The inventory's hosts, ready to be read and changed, with connections that are closed at the end."""
    # Sentences about the way on stderr; what came out, with --json nothing but the document, on stdout.
    words, results = Words(quiet=manner.quiet), Words(sys.stdout, quiet=manner.quiet)
    everybody = members(inventory, None, words)
    chosen = members(inventory, limit, Words(quiet=True)) if limit else everybody
    hosts = tuple(each.alias for each in chosen.settings)
    target = Target(
        everybody.settings,
        hosts,
        site_tables(),
        manner.permissions,
        manner.timeout,
        groups_of(everybody.inventory),
    )
    with Interrupts() as interrupts, remotes_of(target.members, access, words) as remotes:
        yield Converge(everybody.inventory, target, remotes, words, results, interrupts, manner.forks)


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
        self.target = target
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
                self.target, reading, self._remotes, self._forks, self._interrupts.cancel, self._doing
            )
        is_agreed = bool(applied) or not reading.hosts_with_changes
        proofs = self._prove(reading, replace(wanted, check=wanted.check or not is_agreed))
        self._words.clear()
        return Result(reading, applied, proofs, time.monotonic() - begun)

    def show(self, result: Result, details: report.Details) -> None:
        """The report for people; the commands of a plan that a person has just seen are not shown again."""
        commands = details.diff and not self._plan_shown
        report.show(self._results, result, replace(details, commands=commands))

    def _prove(self, reading: Reading, wanted: Wanted) -> Proofs:
        return prove(
            self._inventory.path.resolve(),
            self.target,
            reading,
            self._remotes,
            wanted,
            self._interrupts,
            self._doing,
        )

    def reset(self, *, check: bool, yes: bool) -> Reset:
        """Take back what preflight left, if that is wanted. Raises ClusterkitError while a run is alive."""
        reading = self._read()
        self._words.clear()
        self._refuse_while_running(reading)
        undoing = reset.plan(reading, self.target.hosts)
        if not undoing.hosts or check:
            return Reset(undoing)
        head = "taking back:" if yes else "would take back:"
        if not self._may(yes, [head, *changes.undo_lines(undoing)] if yes or asks() else []):
            return Reset(undoing)
        done, failed = reset.apply(undoing, self._remotes, self._forks, self._interrupts.cancel, self._doing)
        after = reset.plan(self._read(), self.target.hosts)
        self._words.clear()
        return Reset(undoing, done, failed, after)

    def show_reset(self, result: Reset) -> None:
        """The report for people; a plan that a person has just seen is not shown again."""
        reset_report.show(self._results, result, plan=not self._plan_shown)

    def _refuse_while_running(self, reading: Reading) -> None:
        for host, facts in reading.fleet.facts.items():
            runs = facts.get(RUNS)
            if host in self.target.hosts and runs and runs.live:
                raise ClusterkitError(
                    f"run {runs.live[0].run_id} is alive on {host}, and may need what would be taken back",
                    f"end it first: clusterkit stop {runs.live[0].run_id}",
                )

    def _read(self) -> Reading:
        return preflight.read(self.target, self._remotes, self._forks, self._interrupts.cancel, self._doing)

    def _plan(self, reading: Reading, yes: bool, diff: bool) -> list[str]:
        """What is agreed to; without somebody who could, the report has it."""
        if not (yes or asks()):
            return []
        head = "changing" if yes else "would change"
        shown = f"{head}:" if diff else f"{head} (--diff shows the commands):"
        return [shown, *changes.plan_lines(reading.verdicts, commands=diff)]

    def _may(self, yes: bool, lines: Sequence[str]) -> bool:
        """Whether what is shown shall be done; the report need not show it again."""
        self._plan_shown = yes or asks()
        return agreed(self._words, self._interrupts, lines, yes=yes)

    def _doing(self, what: str, waiting: Sequence[str]) -> None:
        if waiting:
            self._words.progress(f"{what}: waiting for {fold(waiting)}")
