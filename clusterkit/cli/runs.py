"""`clusterkit runs`: what ran."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from clusterkit.cli.options import AsJson


def runs(
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Show this many, the newest first.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List the runs recorded on this machine, the newest first."""
    from itertools import islice

    from clusterkit.report.status import runs_lines
    from clusterkit.runs.record import RunStore, iso, state_directory

    store = RunStore(state_directory(os.environ))
    records = list(islice(store.records(), count))
    if as_json:
        entries = [
            {
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
            for record in records
        ]
        print(json.dumps({"schema": 1, "runs": entries}, indent=1))
    elif records:
        print("\n".join(runs_lines(records)))
    else:
        print(f"no run is recorded in {store.directory}", file=sys.stderr)
