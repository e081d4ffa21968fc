"""`clusterkit stop`: end a run on all its hosts."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from clusterkit.cli.options import (
    FORKS,
    AsJson,
    AskPass,
    Forks,
    InventoryOption,
    StrictHostKeys,
    Verbose,
)


def stop(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A run's id, or a part of it. Default: the newest run."),
    ] = None,
    inventory: InventoryOption = None,
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace",
            min=0,
            metavar="SECONDS",
            help="Between SIGTERM and SIGKILL. Default: the run's own (40).",
        ),
    ] = None,
    as_json: AsJson = False,
    forks: Forks = FORKS,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=1, metavar="SECONDS", help="Limit for one host's answer, beyond the grace."
        ),
    ] = 30.0,
    ask_pass: AskPass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """End a run on all its hosts and prove that nothing of it is left behind."""
    from clusterkit.cli.session import Access, recorded_run, run_remotes
    from clusterkit.errors import FleetError
    from clusterkit.interrupts import Interrupts
    from clusterkit.report import stop as report
    from clusterkit.report.terminal import Words
    from clusterkit.stop import stop as stop_run

    access = Access(ask_pass=ask_pass, strict_host_keys=strict_host_keys)
    store, record = recorded_run(run, inventory, access)
    words = Words(quiet=as_json)
    waiting = [node.host for node in record.nodes]

    def done(host: str) -> None:
        waiting.remove(host)
        report.progress(words, waiting)

    report.progress(words, waiting)
    with Interrupts() as interrupts, run_remotes(record, inventory, access) as remotes:
        result = stop_run(
            record,
            remotes,
            store,
            grace=record.grace if grace is None else grace,
            forks=forks,
            timeout=timeout,
            cancel=interrupts.cancel,
            on_done=done,
        )
    words.clear()
    if as_json:
        print(json.dumps(report.document(result), indent=1))
    else:
        report.show(Words(sys.stdout), result)
    if not result.failures:
        raise typer.Exit(0 if result.clean else 1)
    failed = FleetError(result.failures, f"stopping run {record.run_id}, which may go on where it failed")
    raise typer.Exit(failed.exit_code) if as_json else failed
