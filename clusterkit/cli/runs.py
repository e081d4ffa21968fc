"""`clusterkit runs`: what ran; `runs prune`: what is kept of it."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.options import FORKS, AsJson, AskPass, Forks, InventoryOption, StrictHostKeys, Verbose

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def runs(
    context: typer.Context,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Show this many, the newest first.")
    ] = 20,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATES", help="Only runs in these states: `running,failed`."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Only runs started since: `12h`, `7d`, `2026-11-30`."),
    ] = None,
    inventory: InventoryOption = None,
    as_json: AsJson = False,
    forks: Forks = FORKS,
    ask_pass: AskPass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """List runs, the newest first: those recorded on this machine, or with -i those of an inventory's hosts.

    The state is the last one that was seen from here, unless the hosts are asked.
    """
    if context.invoked_subcommand:
        return
    import time
    from itertools import islice

    from clusterkit.cli import listing
    from clusterkit.cli.session import Access
    from clusterkit.runs import filters

    wanted = filters.states(state)
    after = filters.since(since, time.time()) if since else None
    access = Access(ask_pass=ask_pass, strict_host_keys=strict_host_keys)
    records = listing.recorded() if inventory is None else listing.on_hosts(inventory, access, count, forks)
    listing.show(list(islice(filters.fitting(records, wanted, after), count)), as_json=as_json)


@app.command("prune", short_help="Remove ended runs, here and on their hosts.")
def prune(
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="SPAN", help="Only runs started longer ago: `7d`, `12h`."),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, metavar="N", help="Spare the N newest runs.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    inventory: InventoryOption = None,
    as_json: AsJson = False,
    forks: Forks = FORKS,
    ask_pass: AskPass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """Remove ended runs: their directories on the hosts, and the record and gathered logs here.

    Shows what would go and asks; without a terminal and without --yes it removes nothing. A run that may be
    alive is never touched, and one with a host that does not answer is kept here. The synced code stays.
    """
    from clusterkit.cli import pruning
    from clusterkit.cli.session import Access
    from clusterkit.errors import InputError
    from clusterkit.runs import filters

    if older_than is None and keep is None:
        raise InputError(
            "say which runs may go: --older-than or --keep",
            "clusterkit runs prune --older-than 14d --keep 10",
        )
    span = filters.seconds(older_than) if older_than else None
    access = Access(ask_pass=ask_pass, strict_host_keys=strict_host_keys)
    pruner = pruning.Pruner(inventory, access, forks, as_json=as_json)
    raise typer.Exit(pruner.prune(span, keep or 0, yes=yes))
