"""`clusterkit logs`: any rank's log by its global number."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli.options import AsJson, AskPass, InventoryOption, Run, StrictHostKeys, Verbose


def logs(
    rank: Annotated[
        str | None,
        typer.Option("--rank", metavar="RANKS", help="`3`, `0,2-5` or `all` (default), by global number."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server", metavar="SERVERS", help="Parameter servers by number, as --rank for trainers."
        ),
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="HOST", help="Only this host's ranks.")
    ] = None,
    run: Run = None,
    inventory: InventoryOption = None,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", min=0, metavar="N", help="Of this attempt (first: 0). Default: the last."),
    ] = None,
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
    grep: Annotated[
        list[str] | None,
        typer.Option("--grep", metavar="REGEX", help="Only lines that match; repeated: any of them."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="REGEX", help="No lines that match.")
    ] = None,
    highlight: Annotated[
        list[str] | None,
        typer.Option("--highlight", metavar="REGEX", help="Mark what matches, on a terminal."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            metavar="LEVEL",
            help="Only lines of this level and above: debug, info, warning, error, critical. "
            "A line without one belongs to the line before it.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only lines since then: `10m`, `2h`, or `2026-12-01T09:30`."
        ),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="The time in front of each line (UTC), to about a second.")
    ] = False,
    folded: Annotated[
        bool, typer.Option("--fold", help="Equal lines of several ranks as one; times may differ.")
    ] = False,
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
    from clusterkit.report import sieve
    from clusterkit.report.loglines import Form
    from clusterkit.runs import times
    from clusterkit.runs.record import iso
    from clusterkit.runs.selection import choose

    if follow and output:
        raise InputError(
            "--follow and --output do not go together", "gather with --output after the run, or while it runs"
        )
    if as_json and output:
        raise InputError(
            "--json and --output do not go together", "--output prints the paths of the files, one a line"
        )
    choice = sieve.Choice(
        sieve.patterns("--grep", grep or []),
        sieve.patterns("--exclude", exclude or []),
        sieve.patterns("--highlight", highlight or []),
        sieve.level(level),
    )
    begin = None if since is None else times.since(since, time.time())
    if output and (timestamps or begin is not None or not choice.everything):
        raise InputError(
            "--output writes whole logs",
            "leave out what chooses or marks lines: --grep, --since, --fold, …",
        )
    if folded and (output or as_json):
        raise InputError(
            f"--fold and {'--output' if output else '--json'} do not go together",
            "a file or a program gets each line of each rank",
        )
    access = Access(ask_pass=ask_pass, strict_host_keys=strict_host_keys)
    store, record = recorded_run(run, inventory, access)
    ranks = choose(record, rank, node or [], server)
    if not ranks:
        raise NotFound(
            "no rank is selected",
            f"--rank and --node exclude each other; ranks are 0-{record.world_size - 1}",
        )
    alone = len(ranks) == 1
    form = Form(
        choice,
        alone=alone,
        folded=folded and not alone,
        timestamps=timestamps,
        since=iso(begin),
        as_json=as_json,
    )
    reader = reading.Reader(
        store, record, ranks, inventory, access, timeout, form, attempt=attempt, since=begin
    )
    if output:
        raise typer.Exit(reader.export(output))
    if follow and attempt is None:
        raise typer.Exit(reader.follow(_lines(tail, default=None if since else 10)))
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
