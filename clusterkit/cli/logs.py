"""`clusterkit logs`: any rank's log by its global number."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli.options import AsJson, AskPass, InventoryOption, Run, StrictHostKeys, Verbose


def logs(
    rank: Annotated[
        str | None,
        typer.Option("--rank", metavar="RANKS", help="`3`, `0,2-5` or `all` (default), by global number."),
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="HOST", help="Only this host's ranks.")
    ] = None,
    run: Run = None,
    inventory: InventoryOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay and show new lines until the run ends.")
    ] = False,
    tail: Annotated[
        str | None,
        typer.Option("--tail", "-n", metavar="N", help="Only the last N lines of each rank, or `all`."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write rank-0003.log and so on into DIR."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=1,
            metavar="SECONDS",
            help="Leave out a host that sends nothing for so long. With --follow nothing is left out.",
        ),
    ] = 60.0,
    as_json: AsJson = False,
    ask_pass: AskPass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """Show any rank's log by its global number, of the newest run or of `--run`.

    One rank is printed as it is; several have `[RANK HOST]` in front of each line. With --json each line is
    an object, as in `launch --json`.
    """
    from clusterkit.cli import reading
    from clusterkit.cli.session import Access, recorded_run
    from clusterkit.errors import InputError, NotFound
    from clusterkit.runs.selection import choose

    if follow and output:
        raise InputError(
            "--follow and --output do not go together", "gather with --output after the run, or while it runs"
        )
    if as_json and output:
        raise InputError(
            "--json and --output do not go together", "--output prints the paths of the files, one a line"
        )
    access = Access(ask_pass=ask_pass, strict_host_keys=strict_host_keys)
    store, record = recorded_run(run, inventory, access)
    ranks = choose(record, rank, node or [])
    if not ranks:
        raise NotFound(
            "no rank is selected",
            f"--rank and --node exclude each other; ranks are 0-{record.world_size - 1}",
        )
    reader = reading.Reader(store, record, ranks, inventory, access, timeout, as_json=as_json)
    if output:
        raise typer.Exit(reader.export(output))
    if follow:
        raise typer.Exit(reader.follow(_lines(tail, default=10)))
    raise typer.Exit(reader.show(_lines(tail, default=None)))


def _lines(tail: str | None, default: int | None) -> int | None:
    """How many lines `--tail` asks for; None means all."""
    from clusterkit.errors import InputError

    if tail is None:
        return default
    if tail == "all":
        return None
    if not tail.isdecimal():
        raise InputError(f"--tail {tail}: not a number of lines", "write a number, or `all`")
    return int(tail)
