"""`clusterkit stacks`: what every rank is doing now."""

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
    StrictHostKeys,
    Verbose,
)


def stacks(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A run's id, or a part of it. Default: the newest run."),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option("--rank", metavar="RANKS", help="`3`, `0,2-5` or `all`, by global number."),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="SERVERS", help="Parameter servers by number.")
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="HOST", help="Only this host's ranks.")
    ] = None,
    all_threads: Annotated[
        bool, typer.Option("--all-threads", help="Every thread, not the main one alone.")
    ] = False,
    inventory: InventoryOption = None,
    as_json: AsJson = False,
    forks: Forks = FORKS,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Limit for one host's answer.")
    ] = 20.0,
    ask_pass: AskPass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """Show the Python stacks of all ranks of a running job, those that stand at the same place together.

    All are asked at the same time; the job goes on. The last line says where most of them are, and names
    those that are elsewhere: in a job that hangs, the others wait for them.
    """
    from clusterkit.cli.session import Access, recorded_run, run_remotes
    from clusterkit.errors import FleetError, NotFound
    from clusterkit.interrupts import Interrupts
    from clusterkit.report import stacks as report
    from clusterkit.report.folding import fold
    from clusterkit.report.terminal import Words
    from clusterkit.runs.record import ENDED
    from clusterkit.runs.selection import choose
    from clusterkit.stacks import take

    access = Access(ask_pass=ask_pass, strict_host_keys=strict_host_keys)
    store, record = recorded_run(run, inventory, access)
    if record.state in ENDED:
        raise NotFound(
            f"run {record.run_id} is over ({record.state}): nothing of it runs whose stacks could be taken",
            "`clusterkit launch --hang-timeout S --on-hang dump` keeps those of a job that hangs",
        )
    # Without any option all servers too.
    everything = tuple(each for one in record.nodes for each in one.processes)
    chosen = choose(record, rank, node or [], server) if rank or server or node else everything
    words = Words(quiet=as_json)
    waiting = [one.host for one in record.nodes if set(one.processes) & set(chosen)]

    def done(host: str) -> None:
        waiting.remove(host)
        if waiting:
            words.progress(f"taking stacks: waiting for {fold(waiting)}")

    words.progress(f"taking stacks: waiting for {fold(waiting)}")
    with Interrupts() as interrupts, run_remotes(record, inventory, access) as remotes:
        cancel = interrupts.cancel
        found = take(record, chosen, remotes, forks=forks, timeout=timeout, cancel=cancel, on_done=done)
    words.clear()
    document = report.document(record, found)
    if found.told:
        store.keep_stacks(record.run_id, json.dumps(document, indent=1))
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        print("\n".join(report.lines(record, found, all_threads=all_threads)))
    if found.failures:
        failed = FleetError(found.failures, f"taking the stacks of run {record.run_id}")
        raise typer.Exit(failed.exit_code) if as_json else failed
