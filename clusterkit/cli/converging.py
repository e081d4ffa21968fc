"""What `preflight` and `reset` share: read, show what would be done, ask, do it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from clusterkit import preflight, reset
from clusterkit.between import groups_of
from clusterkit.cli.asking import agreed
from clusterkit.cli.session import Access, members, remotes_of, site_tables
from clusterkit.errors import ClusterkitError, ExitCode, worst
from clusterkit.interrupts import Interrupts
from clusterkit.inventory.model import Inventory
from clusterkit.preflight import Reading, Target
from clusterkit.probes import RUNS
from clusterkit.proving import Proofs, Result, Wanted, prove
from clusterkit.remote import Remote
from clusterkit.report import preflight as report
from clusterkit.report import problems
from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words
from clusterkit.reset import Undoing
from clusterkit.steps.applying import Applied
from clusterkit.steps.engine import Permissions


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
    words = Words(quiet=quiet)
    everybody = members(inventory, None, words)
    chosen = members(inventory, limit, Words(quiet=True)) if limit else everybody
    hosts = tuple(each.alias for each in chosen.settings)
    target = Target(everybody.settings, hosts, site_tables(), permissions or Permissions())
    with Interrupts() as interrupts, remotes_of(target.members, access, words) as remotes:
        yield Converge(everybody.inventory, target, remotes, words, interrupts, forks)


class Converge:
    """One target, and the person who may be asked."""

    def __init__(
        self,
        inventory: Inventory,
        target: Target,
        remotes: Mapping[str, Remote],
        words: Words,
        interrupts: Interrupts,
        forks: int,
    ) -> None:
        self._inventory = inventory
        self._target = target
        self._remotes = remotes
        self._words = words
        self._interrupts = interrupts
        self._forks = forks

    def preflight(self, wanted: Wanted, *, yes: bool, diff: bool) -> Result:
        """Read, apply what is pending if that is wanted, prove it."""
        begun = time.monotonic()
        reading = self._read()
        applied: dict[str, Applied] = {}
        if reading.hosts_with_changes and not wanted.check and self._agreed(yes, self._plan(reading, diff)):
            reading, applied = preflight.apply(
                self._target, reading, self._remotes, self._forks, self._interrupts.cancel, self._doing
            )
        is_agreed = bool(applied) or not reading.hosts_with_changes
        proofs = self._prove(reading, replace(wanted, check=wanted.check or not is_agreed))
        self._words.clear()
        return Result(reading, applied, proofs, time.monotonic() - begun)

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
        lines = report.undo_lines(undoing)
        missed = self._not_looked_at(reading, undoing)
        if not lines:
            where = " that could be looked at" if missed else ""
            self._words.insist(f"preflight has left nothing on the hosts{where}")
            return missed
        if check:
            for line in ("would take back:", *lines):
                self._words.say(line)
            return missed or ExitCode.PENDING
        if not self._agreed(yes, ["would take back:" if not yes else "taking back:", *lines]):
            return missed or ExitCode.PENDING
        done, failed = reset.apply(undoing, self._remotes, self._forks, self._interrupts.cancel, self._doing)
        self._words.clear()
        return worst([self._told(done, failed), missed])

    def _not_looked_at(self, reading: Reading, undoing: Undoing) -> int:
        """Name the hosts, and the steps on hosts, of which it is not known what they have; the exit code."""
        for error in reading.unreachable.values():
            problems.show(error, words=self._words)
        groups: dict[tuple[str, str], list[str]] = {}
        for host, of_host in undoing.unread.items():
            for name, why in of_host.items():
                groups.setdefault((name, why), []).append(host)
        for (name, why), hosts in groups.items():
            self._words.insist(f"{fold(hosts)}: {name} could not be looked for: {why}", "red")
        unreachable = ExitCode.UNREACHABLE if reading.unreachable else ExitCode.OK
        return worst([unreachable, ExitCode.FAILED if groups else ExitCode.OK])

    def _told(self, done: Mapping[str, Applied], failed: Mapping[str, ClusterkitError]) -> int:
        again = reset.plan(self._read(), self._target.hosts)
        self._words.clear()
        for host in again.hosts:
            for name in again.lines[host]:
                why = done[host].words(name) if host in done else ""
                self._words.insist(f"{host}: {name} {'failed: ' + why if why else 'is still there'}", "red")
        for error in failed.values():
            problems.show(error, words=self._words)
        if again.hosts or failed:
            return ExitCode.FAILED
        self._words.insist(f"taken back on {fold(done)}", "green")
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

    def _plan(self, reading: Reading, diff: bool) -> list[str]:
        head = "would change:" if diff else "would change (--diff shows the commands):"
        return [head, *report.plan_lines(reading, diff)]

    def _agreed(self, yes: bool, lines: Sequence[str]) -> bool:
        return agreed(self._words, self._interrupts, lines, yes=yes)

    def _doing(self, what: str, waiting: Sequence[str]) -> None:
        if waiting:
            self._words.progress(f"{what}: waiting for {fold(waiting)}")
