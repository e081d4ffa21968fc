"""`clusterkit exec`: one command on all hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from clusterkit.cli.options import (
    FORKS,
    TIMEOUT_S,
    AsJson,
    AskBecomePass,
    AskPass,
    Forks,
    Inventory,
    Limit,
    StrictHostKeys,
    Timeout,
    Verbose,
)
from clusterkit.cli.passing import PASSED_ON
from clusterkit.errors import InputError


def execute(
    context: typer.Context,
    inventory: Inventory = None,
    limit: Limit = None,
    become: Annotated[bool, typer.Option("--become", "-b", help="Run it as root, with sudo.")] = False,
    forks: Forks = FORKS,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
    ask_pass: AskPass = False,
    ask_become_pass: AskBecomePass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """Run one command on all hosts of an inventory; equal output is shown once.

    The command stands after `--`. One word is a line for the host's shell, several are a program and its
    arguments: clusterkit exec inventory.ini -- nvidia-smi -L
    """
    import json

    from clusterkit.cli.session import Access, members, remotes_of
    from clusterkit.fleet import execute as run
    from clusterkit.interrupts import Interrupts
    from clusterkit.report import answers
    from clusterkit.report.terminal import Words

    command = _command(context.meta[PASSED_ON])
    talk = Words(quiet=as_json)
    chosen = members(inventory, limit, talk)
    waiting = [settings.alias for settings in chosen.settings]

    def done(alias: str) -> None:
        waiting.remove(alias)
        answers.progress(talk, waiting)

    answers.progress(talk, waiting)
    access = Access(ask_pass=ask_pass, ask_become_pass=ask_become_pass, strict_host_keys=strict_host_keys)
    with Interrupts() as interrupts, remotes_of(chosen.settings, access, talk) as remotes:
        result = run(
            remotes,
            command,
            forks=forks,
            timeout=timeout,
            sudo=become,
            cancel=interrupts.cancel,
            on_done=done,
        )
    talk.clear()
    if as_json:
        print(json.dumps(answers.document(result), indent=1))
    else:
        answers.show(talk, result)
    raise typer.Exit(result.exit_code)


def _command(words: Sequence[str] | None) -> Sequence[str]:
    """What stands after `--`. Raises InputError if nothing does."""
    if words:
        return words
    problem = "the command has to stand after `--`" if words is None else "no command stands after `--`"
    raise InputError(problem, "write: clusterkit exec inventory.ini -- nvidia-smi -L")
