"""`clusterkit launch`: start one job on all nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli.options import (
    FORKS,
    TIMEOUT_S,
    AsJson,
    AskPass,
    Forks,
    Limit,
    StrictHostKeys,
    Timeout,
    Verbose,
)
from clusterkit.cli.passing import PASSED_ON


def launch(
    context: typer.Context,
    inventory: Annotated[
        str, typer.Argument(metavar="INVENTORY", help="Ansible INI inventory.", show_default=False)
    ],
    script: Annotated[
        str,
        typer.Argument(metavar="SCRIPT", help="What follows it belongs to it.", show_default=False),
    ],
    nproc_per_node: Annotated[
        int | None,
        typer.Option(
            "--nproc-per-node", min=1, metavar="N", help="Ranks on each node where there is no GPU."
        ),
    ] = None,
    devices: Annotated[
        str | None, typer.Option("--devices", metavar="LIST", help="GPUs of each node: `all` or `0,1,2,3`.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="A variable for the job. Repeatable."),
    ] = None,
    env_file: Annotated[
        Path | None,
        typer.Option("--env-file", metavar="FILE", help="Secrets for the ranks only, as NAME=VALUE lines."),
    ] = None,
    keep_proxy: Annotated[
        bool, typer.Option("--keep-proxy", help="Keep proxies for the script, with all nodes in NO_PROXY.")
    ] = False,
    run_mode: Annotated[
        str, typer.Option("--run-mode", metavar="MODE", help="`collective` or `ps`.")
    ] = "collective",
    servers: Annotated[
        int | None,
        typer.Option("--servers", min=1, metavar="N", help="With `--run-mode ps`: servers of the whole job."),
    ] = None,
    trainers: Annotated[
        int | None,
        typer.Option(
            "--trainers", min=1, metavar="N", help="With `--run-mode ps`: trainers of the whole job."
        ),
    ] = None,
    limit: Limit = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once all nodes have started.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show the summary only.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show each node's exact command and start nothing.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="With --dry-run: write each node's files here."),
    ] = None,
    show_env: Annotated[bool, typer.Option("--show-env", help="With --dry-run: do not mask values.")] = False,
    sync: Annotated[
        bool, typer.Option("--sync/--no-sync", help="Send the code, or find it on a shared mount.")
    ] = True,
    sync_limit: Annotated[
        int, typer.Option("--sync-limit", min=1, metavar="MB", help="Refuse to send more code than this.")
    ] = 200,
    preflight: Annotated[
        bool, typer.Option("--preflight/--no-preflight", help="Check the hosts before anything is sent.")
    ] = True,
    template: Annotated[
        str | None,
        typer.Option(
            "--template", metavar="FILE", help="Another template of each node's script, or `torchrun`."
        ),
    ] = None,
    join_timeout: Annotated[
        float, typer.Option("--join-timeout", min=1, metavar="SECONDS", help="Until all ranks have started.")
    ] = 300.0,
    node_timeout: Annotated[
        float,
        typer.Option(
            "--node-timeout", min=2, metavar="SECONDS", help="A node not heard for this long is lost."
        ),
    ] = 20.0,
    grace: Annotated[
        float,
        typer.Option("--grace", min=0, metavar="SECONDS", help="Between SIGTERM and SIGKILL at the end."),
    ] = 40.0,
    max_restarts: Annotated[
        int,
        typer.Option("--max-restarts", min=0, metavar="N", help="Start a failed job again, so many times."),
    ] = 0,
    hang_timeout: Annotated[
        float,
        typer.Option(
            "--hang-timeout", min=0, metavar="SECONDS", help="All ranks silent so long: it hangs. 0: never."
        ),
    ] = 0.0,
    on_hang: Annotated[
        str, typer.Option("--on-hang", metavar="WHAT", help="`report`, `dump` stacks, `stop` or `restart`.")
    ] = "report",
    checkpoint_dir: Annotated[
        str,
        typer.Option(
            "--checkpoint-dir", metavar="DIR", help="CLUSTERKIT_CHECKPOINT_DIR of the job, on the hosts."
        ),
    ] = "checkpoints",
    lock_wait: Annotated[
        float,
        typer.Option(
            "--lock-wait", min=0, metavar="SECONDS", help="Wait so long for hosts that another run holds."
        ),
    ] = 0.0,
    on_end: Annotated[
        str | None,
        typer.Option(
            "--on-end", metavar="CMD", help="Run here when the run has ended, its status as JSON on stdin."
        ),
    ] = None,
    forks: Forks = FORKS,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
    ask_pass: AskPass = False,
    strict_host_keys: StrictHostKeys = False,
    verbose: Verbose = False,
) -> None:
    """Start the launcher on all nodes at once, each with its own node IP and rank, and follow all ranks.

    Ends with the exit code of the rank that failed first. Options stand before SCRIPT. Ctrl-C stops the job
    on all nodes, a second Ctrl-C without grace; closing the terminal detaches.
    """
    from clusterkit.cli import launching
    from clusterkit.cli.session import Access, members, site_rules, site_tables
    from clusterkit.launch import Manner
    from clusterkit.planning.attempts import Attempts
    from clusterkit.planning.plan import Timeouts
    from clusterkit.prepare import Order
    from clusterkit.report.terminal import Words

    launching.refuse_confusion(inventory, script, run_mode, servers, trainers)
    words = Words(quiet=quiet or as_json)
    arguments = tuple(context.meta[PASSED_ON])
    ours = {name for parameter in context.command.params for name in parameter.opts}
    if note := launching.misplaced(ours, arguments, script):
        words.say(note, "yellow")
    chosen = members(inventory, limit, words)
    roles = launching.roles(chosen, servers, trainers, nproc_per_node) if run_mode == "ps" else None
    taking_part = [each for each in chosen.settings if roles is None or each.alias in roles]
    order = Order(
        inventory=chosen.inventory.path.resolve(),
        members=tuple(taking_part),
        script=script,
        arguments=arguments,
        cwd=Path.cwd(),
        nproc_per_node=nproc_per_node,
        devices=launching.device_list(devices),
        env=tuple(env or ()),
        env_file=env_file,
        keep_proxy=keep_proxy,
        sync=sync,
        sync_limit_bytes=sync_limit * 1_000_000,
        check=preflight,
        timeout=timeout,
        template=launching.template_file(template, chosen.inventory.path),
        roles=roles,
        owner=launching.owner(),
        timeouts=Timeouts(join=join_timeout, node=node_timeout, grace=grace, hang=hang_timeout),
        attempts=Attempts(max_restarts, on_hang=launching.on_hang(on_hang, hang_timeout)),
        checkpoint_dir=checkpoint_dir,
        tables=site_tables(),
    )
    access = Access(ask_pass=ask_pass, strict_host_keys=strict_host_keys)
    spares = chosen.spares if max_restarts else ()
    starter = launching.Starter(
        *(order, access, words),
        as_json=as_json,
        quiet=quiet,
        spares=spares,
        lock_wait=lock_wait,
        on_end=on_end,
        rules=site_rules(),
    )
    if dry_run:
        raise typer.Exit(starter.dry_run(output, show_env, forks))
    raise typer.Exit(starter.launch(Manner(forks=forks, timeout=timeout, detach=detach)))
