"""`clusterkit preflight`: bring every host to its declared state, and prove it; `reset`: take it back."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from clusterkit.cli.options import (
    FORKS,
    READING_TIMEOUT_S,
    AsJson,
    AskBecomePass,
    AskPass,
    Forks,
    Inventory,
    Limit,
    ReadingTimeout,
    StrictHostKeys,
    Verbose,
)

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def preflight(
    inventory: Inventory = None,
    limit: Limit = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 3 if something would be.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what is and what should be, and the commands.")
    ] = False,
    yes: Yes = False,
    install: Annotated[
        bool, typer.Option("--install", help="Allow packages to be installed from the hosts' own sources.")
    ] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Run a small all-reduce on all nodes.")] = False,
    bandwidth: Annotated[bool, typer.Option("--bandwidth", help="Measure the network, each pair.")] = False,
    all_pairs: Annotated[
        bool, typer.Option("--all-pairs", help="Beyond 32 hosts: connect every pair, not a sample.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for warnings too.")] = False,
    forks: Forks = FORKS,
    timeout: ReadingTimeout = READING_TIMEOUT_S,
    as_json: AsJson = False,
    ask_pass: AskPass = False,
    ask_become_pass: AskBecomePass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Show every check of every host, and the traceback of an error."
        ),
    ] = False,
) -> None:
    """Verify every host, bring it to the state that the inventory declares, and prove it between the hosts.

    Shows what it would change and asks; `--yes` applies without asking. Without a terminal and without
    `--yes` it changes nothing, as with `--check`.
    """
    from clusterkit.cli.converging import Manner, converging
    from clusterkit.cli.session import Access
    from clusterkit.proving import Wanted
    from clusterkit.report import preflight as report
    from clusterkit.steps.engine import Permissions

    access = Access(ask_pass=ask_pass, ask_become_pass=ask_become_pass, strict_host_keys=strict_host_keys)
    wanted = Wanted(check=check, all_pairs=all_pairs, bandwidth=bandwidth, smoke=smoke, forks=forks)
    how = Manner(forks, timeout, quiet=as_json, permissions=Permissions(install=install))
    with converging(inventory, limit, access, how) as converge:
        result = converge.preflight(wanted, yes=yes, diff=diff)
    if as_json:
        print(json.dumps(report.document(result, strict), indent=1, default=str))
    else:
        converge.show(result, report.Details(diff=diff, everything=verbose))
    raise typer.Exit(int(result.exit_code(strict)))


def reset(
    inventory: Inventory = None,
    limit: Limit = None,
    check: Annotated[bool, typer.Option("--check", help="Show what would be taken back.")] = False,
    yes: Yes = False,
    images: Annotated[
        bool, typer.Option("--images", help="Remove the images that preflight pulled, too.")
    ] = False,
    forks: Forks = FORKS,
    timeout: ReadingTimeout = READING_TIMEOUT_S,
    as_json: AsJson = False,
    ask_pass: AskPass = False,
    ask_become_pass: AskBecomePass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """Take back what preflight changed on the hosts, and only that; packages and images stay.

    Shows what it would do and asks; refused while a run is alive on a host.
    """
    from clusterkit.cli.converging import Manner, converging
    from clusterkit.cli.session import Access
    from clusterkit.report import reset as report
    from clusterkit.steps.engine import Permissions

    access = Access(ask_pass=ask_pass, ask_become_pass=ask_become_pass, strict_host_keys=strict_host_keys)
    how = Manner(forks, timeout, quiet=as_json, permissions=Permissions(images=images))
    with converging(inventory, limit, access, how) as converge:
        result = converge.reset(check=check, yes=yes)
    if as_json:
        print(json.dumps(report.document(result), indent=1))
    else:
        converge.show_reset(result)
    raise typer.Exit(int(result.exit_code))
