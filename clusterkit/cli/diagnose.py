"""`clusterkit diagnose`: why a run failed."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from clusterkit.cli.options import (
    FORKS,
    AsJson,
    AskBecomePass,
    AskPass,
    Forks,
    InventoryOption,
    StrictHostKeys,
    Verbose,
)


def diagnose(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A run's id, or a part of it. Default: the newest run."),
    ] = None,
    inventory: InventoryOption = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no host: judge by what was recorded and gathered here.")
    ] = False,
    as_json: AsJson = False,
    forks: Forks = FORKS,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Limit for one host's answer.")
    ] = 20.0,
    ask_pass: AskPass = False,
    ask_become_pass: AskBecomePass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """Say why a run failed: which rank was the first, what is known about such a failure, and what to do.

    The hosts are asked for their kernel logs of that minute, and for logs that were not gathered. Exit code
    0: explained, or nothing has failed; 1: no known failure; 4: a host did not answer.
    """
    from dataclasses import replace

    from clusterkit.cli.session import (
        Access,
        recorded_run,
        run_remotes,
        run_settings,
        site_rules,
        site_tables,
    )
    from clusterkit.diagnose import from_here, with_hosts
    from clusterkit.diagnosis.remains import has_failed
    from clusterkit.diagnosis.verdict import diagnosis
    from clusterkit.interrupts import Interrupts
    from clusterkit.observe import observe
    from clusterkit.report.diagnose import diagnosis_lines
    from clusterkit.report.terminal import Words
    from clusterkit.runs.record import ENDED

    rules, tables = site_rules(), site_tables()
    access = Access(ask_pass=ask_pass, ask_become_pass=ask_become_pass, strict_host_keys=strict_host_keys)
    store, record = recorded_run(run, inventory, access)
    remains = from_here(record, store)
    words = Words(quiet=as_json)
    if not offline and (record.state not in ENDED or has_failed(record.status)):
        words.progress(f"asking {len(record.nodes)} hosts")
        with Interrupts() as interrupts, run_remotes(record, inventory, access) as remotes:
            if record.state not in ENDED:
                now = observe(
                    record, remotes, forks=forks, timeout=timeout, cancel=interrupts.cancel, live=True
                )
                record = replace(record, status=now)
                if record.state in ENDED:
                    store.save(record)
                remains = from_here(record, store)
            if has_failed(record.status):
                settings = run_settings(record, inventory)
                remains = with_hosts(
                    record, remains, settings, remotes, interrupts, forks=forks, timeout=timeout
                )
        words.clear()
    document = diagnosis(record, remains, rules, tables)
    print(json.dumps(document, indent=1) if as_json else "\n".join(diagnosis_lines(document)))
    raise typer.Exit(document["exit_code"])
