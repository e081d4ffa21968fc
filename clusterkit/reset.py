"""Use case: take back what preflight changed, and only that.

Every step finds what it left by its own mark, so nothing that was there before, and nothing that somebody
else made since, is touched.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clusterkit import steps
from clusterkit.errors import HostError
from clusterkit.preflight import Doing, Reading, run_lines
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.steps.applying import Applied
from clusterkit.steps.engine import undone, unseen


@dataclass(frozen=True)
class Undoing:
    """What would be taken back on each host: step → shell lines.

    `unread` are the steps whose facts could not be read, so that what they left there is not known.
    """

    lines: Mapping[str, Mapping[str, Sequence[str]]]
    unread: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        """The hosts where there is something to take back."""
        return [host for host, of_host in self.lines.items() if of_host]


def plan(reading: Reading, hosts: Sequence[str]) -> Undoing:
    """The lines that take everything back, from what the hosts' facts show (pure)."""
    known = [host for host in hosts if host in reading.fleet.facts]
    chosen = steps.chosen()
    unread = {host: unseen(chosen, host, reading.fleet) for host in known}
    return Undoing(
        {host: undone(chosen, host, reading.fleet) for host in known},
        {host: of_host for host, of_host in unread.items() if of_host},
    )


def apply(
    undoing: Undoing, remotes: Mapping[str, Remote], forks: int, cancel: threading.Event, doing: Doing
) -> tuple[dict[str, Applied], dict[str, HostError]]:
    """Run the lines; what each step's lines came to, and the hosts that could not be reached."""
    by_name = {step.name: step for step in steps.chosen()}
    waiting = list(undoing.hosts)

    def one(host: str) -> Applied:
        # The other way round: what was done last is taken back first.
        changes = [(by_name[name], lines) for name, lines in reversed(list(undoing.lines[host].items()))]
        return run_lines(remotes[host], changes, "reset")

    def done(alias: str) -> None:
        waiting.remove(alias)
        doing("taking back", waiting)

    doing("taking back", waiting)
    answers = fan_out({host: host for host in waiting}, one, forks=forks, cancel=cancel, on_done=done)
    return answers.good, answers.bad
