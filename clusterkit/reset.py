"""Use case: take back what preflight changed, and only that.

    read → plan → (apply → read → plan again)

Every step finds what it left by its own mark, so nothing that was there before, and nothing that somebody
else made since, is touched. The second reading decides what is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clusterkit import steps
from clusterkit.errors import ExitCode, HostError, worst
from clusterkit.preflight import Doing, Reading, run_lines
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.steps.applying import Applied
from clusterkit.steps.engine import undone, unseen

Steps = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Undoing:
    """What would be taken back on each host: step → shell lines.

    `unread` are the steps whose facts could not be read, so that what they left there is not known, and why;
    `unreachable` the hosts that could not be asked.
    """

    lines: Mapping[str, Mapping[str, Sequence[str]]]
    unread: Steps = field(default_factory=dict)
    unreachable: Mapping[str, HostError] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        """The hosts where there is something to take back."""
        return [host for host, of_host in self.lines.items() if of_host]

    @property
    def exit_code(self) -> int:
        """4 for a host that could not be asked, else 1 for a step that could not be looked for, else 0."""
        unreachable = ExitCode.UNREACHABLE if self.unreachable else ExitCode.OK
        return worst([unreachable, ExitCode.FAILED if self.unread else ExitCode.OK])


@dataclass(frozen=True)
class Reset:
    """How it ended: what was found, and, where it was carried out, what each host's lines came to.

    `after` is what is still there: None where nothing was done.
    """

    undoing: Undoing
    done: Mapping[str, Applied] = field(default_factory=dict)
    failed: Mapping[str, HostError] = field(default_factory=dict)
    after: Undoing | None = None

    @property
    def left(self) -> Steps:
        """The steps of which something is still there, and why: "" where their lines ended well."""
        if self.after is None:
            return {}
        return {
            host: {name: self.done[host].words(name) if host in self.done else "" for name in of_host}
            for host, of_host in self.after.lines.items()
            if of_host
        }

    @property
    def lost(self) -> Mapping[str, HostError]:
        """The hosts of which it is not known how it ended there."""
        gone = self.after.unreachable if self.after else {}
        later = {host: error for host, error in gone.items() if host not in self.undoing.unreachable}
        return {**later, **self.failed}

    @property
    def taken_back(self) -> list[str]:
        """The hosts of which the second reading found nothing any more."""
        unsure = {*self.left, *self.lost, *(self.after.unread if self.after else ())}
        return [host for host in self.undoing.hosts if host not in unsure] if self.after else []

    @property
    def exit_code(self) -> int:
        """4 for a host that is gone, else 1 for what is left or not known, else 3 if nothing was done."""
        pending = [ExitCode.PENDING] if self.undoing.hosts and self.after is None else []
        left = [ExitCode.FAILED] if self.left else []
        lost = [error.exit_code for error in self.lost.values()]
        after = [self.after.exit_code] if self.after else []
        return worst([self.undoing.exit_code, *pending, *left, *lost, *after])


def plan(reading: Reading, hosts: Sequence[str]) -> Undoing:
    """The lines that take everything back, from what the hosts' facts show (pure)."""
    known = [host for host in hosts if host in reading.fleet.facts]
    chosen = steps.chosen()
    unread = {host: unseen(chosen, host, reading.fleet) for host in known}
    return Undoing(
        {host: undone(chosen, host, reading.fleet) for host in known},
        {host: of_host for host, of_host in unread.items() if of_host},
        reading.unreachable,
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
