"""`clusterkit status`: what runs where."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from clusterkit.cli.options import (
    FORKS,
    AsJson,
    AskPass,
    Forks,
    InventoryOption,
    Run,
    StrictHostKeys,
    Verbose,
)


def status(
    run: Run = None,
    inventory: InventoryOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it anew every 2 s, until the run ends or Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
    forks: Forks = FORKS,
    timeout: float = typer.Option(
        15.0, "--timeout", min=1, metavar="SECONDS", help="Limit for one host's answer."
    ),
    ask_pass: AskPass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """Show how a run stands: each node, and each rank's last step, log, age of its last line and exit code.

    With --watch the picture is drawn anew; where the output is no terminal, a line says what has changed.
    Ctrl-C leaves the run as it is.
    """
    from collections.abc import Mapping
    from dataclasses import replace
    from typing import Any

    from clusterkit.cli import watching
    from clusterkit.cli.session import Access, recorded_run, run_remotes
    from clusterkit.interrupts import Interrupts
    from clusterkit.observe import observe, recorded
    from clusterkit.report.status import status_lines
    from clusterkit.report.terminal import Words
    from clusterkit.runs.record import ENDED

    access = Access(ask_pass=ask_pass, strict_host_keys=strict_host_keys)
    store, record = recorded_run(run, inventory, access)
    if record.state in ENDED:
        document = recorded(record, store)
    else:
        words = Words(quiet=watch)
        words.progress(f"asking {len(record.nodes)} hosts")
        with Interrupts() as interrupts, run_remotes(record, inventory, access) as remotes:

            def ask() -> Mapping[str, Any]:
                cancel = interrupts.cancel
                now = observe(record, remotes, forks=forks, timeout=timeout, cancel=cancel, live=True)
                # Whoever launched it has recorded its end with more than we know.
                if store.load(record.run_id).state not in ENDED:
                    store.save(replace(record, status=now))
                return now

            if watch:
                raise typer.Exit(watching.watch(ask, interrupts, as_json=as_json))
            document = dict(ask())
        words.clear()
    if as_json:
        print(json.dumps(document, indent=None if watch else 1))
    else:
        print("\n".join(status_lines(document)))
