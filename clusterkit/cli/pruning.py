"""What `clusterkit runs prune` does: choose, make sure of what is over, show, ask, remove."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from clusterkit import inventory as inventories
from clusterkit.cli import listing
from clusterkit.cli.asking import agreed
from clusterkit.cli.session import Access, run_remotes
from clusterkit.errors import ExitCode, HostError, named, worst
from clusterkit.interrupts import Interrupts
from clusterkit.observe import observe
from clusterkit.pruning import Pruned, remove
from clusterkit.report.status import size, span
from clusterkit.report.terminal import Words
from clusterkit.runs import filters
from clusterkit.runs.record import ENDED, RunRecord, RunStore, age, state_directory

_ALL = 1_000_000
_ASK_S = 15.0
# A launch that has not come further in this time has died with its controller.
_ABANDONED_S = 3600.0


class Pruner:
    """The runs that are recorded here, or with an inventory those of its hosts too."""

    def __init__(self, inventory: str | None, access: Access, forks: int, *, as_json: bool) -> None:
        self._inventory = inventory
        self._access = access
        self._forks = forks
        self._json = as_json
        self._words = Words(quiet=as_json)
        self._store = RunStore(state_directory(os.environ))

    def prune(self, older_than: float | None, keep: int, *, yes: bool) -> int:
        """Remove the ended runs that are neither young nor among the newest; the exit code."""
        with Interrupts() as interrupts:
            chosen = filters.beyond(self._records(), time.time(), older_than, keep)
            over, alive = self._made_sure(chosen, interrupts)
            for record in alive:
                self._words.say(f"kept: run {record.run_id} is {record.state}, or its hosts do not answer")
            if not over:
                self._words.say("no ended run is old enough to go")
                return self._told([], alive)
            if not agreed(self._words, interrupts, self._lines(over, yes=yes), yes=yes):
                return self._told([], alive, [record.run_id for record in over])
            pruned = [each for group in _by_inventory(over) for each in self._remove(group, interrupts)]
        return self._told(pruned, alive)

    def _records(self) -> list[RunRecord]:
        if self._inventory is None:
            return list(listing.recorded())
        path = str(inventories.find(self._inventory, Path.cwd(), os.environ).path.resolve())
        return listing.on_hosts(path, self._access, _ALL, self._forks)

    def _made_sure(
        self, chosen: Sequence[RunRecord], interrupts: Interrupts
    ) -> tuple[list[RunRecord], list[RunRecord]]:
        """Those that are over, and those that may be alive: of these the hosts are asked."""
        over: list[RunRecord] = []
        alive: list[RunRecord] = []
        for record in chosen:
            now = record if record.state in ENDED else self._asked(record, interrupts)
            (over if now.state in ENDED or _abandoned(now) else alive).append(now)
        return over, alive

    def _asked(self, record: RunRecord, interrupts: Interrupts) -> RunRecord:
        self._words.progress(f"asking the hosts of run {record.run_id}")
        with run_remotes(record, self._inventory, self._access) as remotes:
            status = observe(record, remotes, forks=self._forks, timeout=_ASK_S, cancel=interrupts.cancel)
        self._words.clear()
        return replace(record, status=status)

    def _lines(self, over: Sequence[RunRecord], *, yes: bool) -> list[str]:
        lines = [
            f"  {record.run_id}  {record.state}  {span(age(record))} old  "
            f"{len(record.nodes)} host{'s'[: len(record.nodes) != 1]}, {size(self._size(record))} here"
            for record in over
        ]
        return ["removing:" if yes else "would remove:", *lines]

    def _size(self, record: RunRecord) -> int:
        folder = self._store.folder(record.run_id)
        return sum(path.lstat().st_size for path in folder.rglob("*")) if folder.is_dir() else 0

    def _remove(self, group: list[RunRecord], interrupts: Interrupts) -> list[Pruned]:
        """Remove runs of one inventory over one connection a host."""
        nodes = {node.host: node for record in reversed(group) for node in record.nodes}
        everywhere = replace(group[0], nodes=tuple(nodes.values()))
        self._words.progress(f"removing {len(group)} run{'s'[: len(group) != 1]} from {len(nodes)} hosts")
        with run_remotes(everywhere, self._inventory, self._access) as remotes:
            pruned = remove(group, remotes, forks=self._forks, cancel=interrupts.cancel)
        self._words.clear()
        for each in pruned:
            if each.complete:
                shutil.rmtree(self._store.folder(each.record.run_id), ignore_errors=True)
        return pruned

    def _told(self, pruned: Sequence[Pruned], alive: Sequence[RunRecord], pending: Sequence[str] = ()) -> int:
        failures = [error for each in pruned for error in each.failures.values()]
        code = worst([int(error.exit_code) for error in failures])
        code = int(ExitCode.PENDING) if pending else code
        if self._json:
            print(json.dumps({**_document(pruned, alive, code), "pending": list(pending)}, indent=1))
            return code
        for each in pruned:
            self._words.say(f"{each.record.run_id}: {_words(each)}", None if each.complete else "red")
        return code


def _abandoned(record: RunRecord) -> bool:
    return record.state in ("planned", "staging") and age(record) > _ABANDONED_S


def _by_inventory(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.inventory, []).append(record)
    return list(groups.values())


def _words(pruned: Pruned) -> str:
    if pruned.complete:
        return "removed"
    why = "; ".join(named(host, _said(error)) for host, error in pruned.failures.items())
    return f"kept here, since it is not gone everywhere: {why}"


def _said(error: HostError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _document(pruned: Sequence[Pruned], alive: Sequence[RunRecord], code: int) -> dict[str, object]:
    return {
        "schema": 1,
        "ok": code == 0,
        "exit_code": code,
        "removed": [each.record.run_id for each in pruned if each.complete],
        "kept": [
            {
                "run_id": each.record.run_id,
                "hosts": {host: error.message for host, error in each.failures.items()},
            }
            for each in pruned
            if not each.complete
        ],
        "alive": [record.run_id for record in alive],
    }
