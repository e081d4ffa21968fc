"""What `stop` did, host by host."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words
from clusterkit.stop import StopResult


def progress(words: Words, waiting: Sequence[str]) -> None:
    """Who is still awaited."""
    if waiting:
        words.progress(f"stopping: waiting for {fold(waiting)}")


def show(words: Words, result: StopResult) -> None:
    """What was running and what had to be killed; the last line says whether anything is left."""
    for host, stopped in result.hosts.items():
        if stopped.killed:
            words.say(f"{host}: {len(stopped.killed)} processes had to be killed")
        if stopped.left:
            pids = ", ".join(map(str, stopped.left))
            words.insist(f"{host}: these processes are still there: {pids}", "red")
            words.insist("  → they do not react to SIGKILL (a dead file system or driver?): look with `ps`")
    running = [host for host, stopped in result.hosts.items() if stopped.was != "ended"]
    if result.clean and running:
        words.insist(f"run {result.run_id} is stopped on {fold(running)}; nothing of it is left", "green")
    elif result.clean:
        words.insist(f"run {result.run_id} had ended already; nothing of it is left", "green")


def document(result: StopResult) -> dict[str, object]:
    """The same as JSON, schema 1."""
    return {
        "schema": 1,
        "ok": result.clean,
        "run_id": result.run_id,
        "state": result.status.get("state"),
        "hosts": {
            **{
                host: {
                    "was": stopped.was,
                    "killed": list(stopped.killed),
                    "left": list(stopped.left),
                    "error": "",
                }
                for host, stopped in result.hosts.items()
            },
            **{
                host: {"was": None, "killed": [], "left": [], "error": error.message}
                for host, error in result.failures.items()
            },
        },
    }
