"""What `clusterkit runs` lists: the records here, or what the hosts of an inventory keep."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from clusterkit import finding
from clusterkit import inventory as inventories
from clusterkit.cli.session import Access, hosts_of, look_on, runs_of
from clusterkit.report.status import runs_lines
from clusterkit.report.terminal import Words
from clusterkit.runs.record import ENDED, RunRecord, RunStore, iso, state_directory


def recorded() -> Iterable[RunRecord]:
    """The runs recorded on this machine, the newest first."""
    return RunStore(state_directory(os.environ)).records()


def on_hosts(inventory: str, access: Access, count: int, forks: int) -> list[RunRecord]:
    """The newest `count` runs that the hosts of an inventory keep or that are recorded here for it."""
    store = RunStore(state_directory(os.environ))
    path = str(inventories.find(inventory, Path.cwd(), os.environ).path.resolve())
    words = Words()
    with hosts_of(path, access, words) as connected:
        hosts = replace(connected, forks=forks)
        found = look_on(hosts, words)
        here = {run_id: store.load(run_id) for run_id in runs_of(store, path)}
        newest = sorted({*found.identifiers, *here}, reverse=True)[:count]
        # What has ended here has ended; of everything else the hosts know more.
        unsure = [
            run_id
            for run_id in newest
            if found.hosts_of(run_id) and (run_id not in here or here[run_id].state not in ENDED)
        ]
        asked = {record.run_id: record for record in finding.survey(unsure, found, hosts)}
    known = {**here, **asked}
    return [known[run_id] for run_id in newest if run_id in known]


def show(records: Sequence[RunRecord], *, as_json: bool) -> None:
    """Print the runs as a table, or as one document."""
    if as_json:
        print(json.dumps({"schema": 1, "runs": [_entry(record) for record in records]}, indent=1))
    elif records:
        print("\n".join(runs_lines(records)))
    else:
        print("no run is recorded here, or none that fits", file=sys.stderr)


def _entry(record: RunRecord) -> dict[str, object]:
    return {
        "run_id": record.run_id,
        "state": record.state,
        "exit_code": record.status.get("exit_code"),
        "created_at": iso(record.created_at),
        "inventory": record.inventory,
        "script": record.script,
        "args": list(record.args),
        "hosts": [node.host for node in record.nodes],
        "world_size": record.world_size,
    }
