"""The command line as a whole: the list of commands, and what an error becomes."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from clusterkit import __version__
from clusterkit.cli import diagnose, inventory, launch, logs, preflight, runs, sandbox, stacks, status, stop
from clusterkit.cli import exec as exec_command
from clusterkit.cli.passing import AfterDashes, AfterScript
from clusterkit.errors import ClusterkitError, ExitCode
from clusterkit.report import terminal

EPILOG = (
    "Exit codes: 0 ok · 1 failed · 2 usage or bad input · 3 changes pending · 4 a host unreachable or a node "
    "lost · 70 a bug of ours · 130 interrupted · 143 stopped. "
    "`launch` passes on the exit code of the rank that failed first."
)

app = typer.Typer(
    name="clusterkit",
    help="Turn a list of GPU machines you can ssh to into one PaddlePaddle training job.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clusterkit {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Turn a list of GPU machines you can ssh to into one PaddlePaddle training job."""


# The list of commands has a line for each: a docstring's first sentence is longer, and would be cut off.
app.command("preflight", short_help="Verify every host, prepare it, and prove it between the hosts.")(
    preflight.preflight
)
app.command("launch", cls=AfterScript, short_help="Start a job on all nodes at once, and follow it.")(
    launch.launch
)
app.command("logs", short_help="Show any rank's log by its global number.")(logs.logs)
app.command("status", short_help="Show how a run stands, node by node.")(status.status)
app.command("stacks", short_help="Show what every rank is doing now: the Python stacks, grouped.")(
    stacks.stacks
)
app.add_typer(runs.app, name="runs", short_help="List runs; `runs prune` removes old ones.")
app.command("diagnose", short_help="Say why a run failed, with the evidence and the cure.")(diagnose.diagnose)
app.command("stop", short_help="End a run on all its hosts, with nothing left behind.")(stop.stop)
app.command("exec", cls=AfterDashes, short_help="Run one command on all hosts.")(exec_command.execute)
app.command("inventory", short_help="Show what was understood of an inventory.")(inventory.inventory)
app.command("reset", short_help="Take back what preflight changed, and only that.")(preflight.reset)
app.add_typer(sandbox.app, name="sandbox", short_help="Real throwaway hosts on this machine, to rehearse on.")


def main() -> None:
    """Run the command line; errors become one line, a hint and an exit code."""
    try:
        app()
    except ClusterkitError as error:
        from clusterkit.report import problems

        own = _own_arguments(sys.argv[1:])
        problems.show(error, as_json="--json" in own)
        if {"-v", "--verbose"} & set(own):
            traceback.print_exc()
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(ExitCode.INTERRUPTED)
    except terminal.ReaderGone:
        # `head` or `less` has seen enough: there is nobody left to tell.
        terminal.forget_reader(sys.stdout)
        sys.exit(ExitCode.OK)
    except Exception:
        traceback.print_exc()
        sys.stderr.write(
            f"clusterkit {__version__}: this is a bug of ours. Please report it with the lines above "
            "and the command that you typed.\n"
        )
        sys.exit(ExitCode.BUG)


def _own_arguments(arguments: list[str]) -> list[str]:
    """Our own part of the command line: what follows `--`, or a launch's script, is somebody else's."""
    own: list[str] = []
    for argument in arguments:
        if argument == "--" or argument.endswith(".py"):
            break
        own.append(argument)
    return own
