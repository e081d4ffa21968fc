"""Use case: one command on many hosts, equal answers together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from clusterkit.errors import ExitCode, HostError, worst
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote, Result


@dataclass(frozen=True)
class Answers:
    """Each host's result, and the errors of those that gave none."""

    results: Mapping[str, Result]
    failures: Mapping[str, HostError]

    @property
    def exit_code(self) -> int:
        """0 if every command ended with 0; 4 if a host could not be reached; else 1."""
        failed = [ExitCode.FAILED for result in self.results.values() if not result.ok]
        return worst([*failed, *(error.exit_code for error in self.failures.values())])

    def folded(self) -> list[tuple[Result, list[str]]]:
        """Each different result once, with the hosts that gave it, in the order of the inventory."""
        groups: dict[Result, list[str]] = {}
        for host, result in self.results.items():
            groups.setdefault(result, []).append(host)
        return list(groups.items())


def execute(
    remotes: Mapping[str, Remote],
    command: Sequence[str],
    *,
    forks: int,
    timeout: float,
    sudo: bool = False,
    cancel: threading.Event | None = None,
    on_done: Callable[[str], None] | None = None,
) -> Answers:
    """Run a command on every host. A single word is a shell line; several are a program and its arguments."""
    script = command[0] if len(command) == 1 else " ".join(quote(word) for word in command)

    def one(remote: Remote) -> Result:
        return remote.run(script, timeout=timeout, sudo=sudo, doing="the command")

    outcome = fan_out(remotes, one, forks=forks, cancel=cancel, on_done=on_done)
    return Answers(outcome.good, outcome.bad)
