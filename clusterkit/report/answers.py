"""The answers of many hosts to one command, equal ones together."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from clusterkit.errors import FleetError
from clusterkit.fleet import Answers
from clusterkit.report import problems
from clusterkit.report.folding import fold
from clusterkit.report.terminal import Words, coloured, write_bytes


def progress(words: Words, waiting: Sequence[str]) -> None:
    """Who is still awaited."""
    if waiting:
        words.progress(f"waiting for {fold(waiting)}")


def show(words: Words, answers: Answers) -> None:
    """Each different answer once under the names of its hosts; then the hosts that gave none."""
    for result, hosts in answers.folded():
        status = "" if result.ok else f", exit {result.status}"
        heading = f"{fold(hosts)} ({len(hosts)}{status})"
        write_bytes(coloured(heading, "green" if result.ok else "red", sys.stdout).encode() + b"\n")
        output = result.stdout + result.stderr
        write_bytes(output if not output or output.endswith(b"\n") else output + b"\n")
    if answers.failures:
        problems.show_hosts(words, FleetError(answers.failures, "exec"))


def document(answers: Answers) -> dict[str, object]:
    """The same as JSON, schema 1; output as text, undecodable bytes replaced."""
    return {
        "schema": 1,
        "ok": answers.exit_code == 0,
        "exit_code": answers.exit_code,
        "hosts": {
            **{
                host: {
                    "exit_code": result.status,
                    "stdout": result.text,
                    "stderr": result.stderr.decode("utf-8", "replace"),
                    "error": "",
                }
                for host, result in answers.results.items()
            },
            **{
                host: {"exit_code": None, "stdout": "", "stderr": "", "error": error.message}
                for host, error in answers.failures.items()
            },
        },
    }
