"""`clusterkit status`: what runs where."""

from __future__ import annotations

import json

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
    as_json: AsJson = False,
    forks: Forks = FORKS,
    timeout: float = typer.Option(
        15.0, "--timeout", min=1, metavar="SECONDS", help="Limit for one host's answer."
    ),
    ask_pass: AskPass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """Show how a run stands: each node's state, its ranks, their log bytes and exit codes."""
    from dataclasses import replace

    from clusterkit.cli.session import Access, recorded_run, run_remotes
    from clusterkit.interrupts import Interrupts
    from clusterkit.observe import observe
    from clusterkit.report.status import status_lines
    from clusterkit.report.terminal import Words
    from clusterkit.runs.record import ENDED

    access = Access(ask_pass=ask_pass, strict_host_keys=strict_host_keys)
    store, record = recorded_run(run, inventory, access)
    document = dict(record.status)
    if record.state not in ENDED:
        words = Words()
        words.progress(f"asking {len(record.nodes)} hosts")
        with Interrupts() as interrupts, run_remotes(record, inventory, access) as remotes:
            document = observe(record, remotes, forks=forks, timeout=timeout, cancel=interrupts.cancel)
        words.clear()
        store.save(replace(record, status=document))
    print(json.dumps(document, indent=1) if as_json else "\n".join(status_lines(document)))
