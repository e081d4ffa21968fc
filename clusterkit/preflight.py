"""Use case: verify every host, bring it to the state that the inventory declares, prove it between the hosts.

    gather → judge → (apply → gather → judge) → between → vote

The second reading decides whether a change took, whatever its commands returned. One host's trouble never
hides another's result.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from clusterkit import steps
from clusterkit.errors import HostError, PortsTaken, TopologyError
from clusterkit.facts import Facts, gather
from clusterkit.inventory.model import Settings
from clusterkit.paced import Paced
from clusterkit.planning import topology
from clusterkit.planning.topology import Topology
from clusterkit.probes import LAUNCH
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.steps import Fleet, Step, Verdict
from clusterkit.steps.agreement import Groups
from clusterkit.steps.applying import Applied, outcome, script
from clusterkit.steps.engine import Permissions, Status
from clusterkit.tables import Tables

FACTS_TIMEOUT_S = 90.0
# Each step's own lines set tighter limits.
APPLY_TIMEOUT_S = 3600.0

Doing = Callable[[str, Sequence[str]], None]


@dataclass(frozen=True)
class Target:
    """All hosts of the inventory (rules between nodes name them all), and those that this call is about.

    `tables` are the site's own, None for those that are shipped. Reading one host may take `timeout` seconds,
    once it is connected. `groups` are those of the inventory: hardware may differ between them.
    """

    members: tuple[Settings, ...]
    hosts: tuple[str, ...]
    tables: Tables | None = None
    permissions: Permissions = field(default_factory=Permissions)
    timeout: float = FACTS_TIMEOUT_S
    groups: Groups = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """The hosts as they were read: verdicts on those that answered, errors of those that did not.

    `unable` are hosts that cannot take part in a job as they are, and why; `problem` is why the others do not
    make up one, and `hint` what to do about that.
    """

    fleet: Fleet
    verdicts: tuple[Verdict, ...]
    unreachable: Mapping[str, HostError]
    problem: str = ""
    unable: Mapping[str, HostError] = field(default_factory=dict)
    hint: str = ""

    def pending(self, host: str) -> list[Verdict]:
        """What would be changed on a host."""
        return [each for each in self.verdicts if each.host == host and each.status == "pending"]

    @property
    def hosts_with_changes(self) -> list[str]:
        """The hosts on which something would be changed, in inventory order."""
        return list(dict.fromkeys(each.host for each in self.verdicts if each.status == "pending"))


@dataclass(frozen=True)
class Finding:
    """What was seen between two hosts, or among all; `source` and `to` may be empty."""

    name: str
    status: Status
    source: str = ""
    to: str = ""
    detail: str = ""
    hint: str = ""


def read(
    target: Target, remotes: Mapping[str, Remote], forks: int, cancel: threading.Event, doing: Doing
) -> Reading:
    """Facts of every host in one round trip each, and what every step says about them. Changes nothing."""
    asked = tuple({probe.name: probe for probe in (*LAUNCH, *steps.probes(steps.chosen()))}.values())
    waiting = [each.alias for each in target.members]

    def one(settings: Settings) -> Facts:
        return gather(remotes[settings.alias], settings, asked, timeout=target.timeout)

    def done(alias: str) -> None:
        waiting.remove(alias)
        doing("reading the hosts", waiting)

    doing("reading the hosts", waiting)
    jobs = {each.alias: each for each in target.members}
    answers = fan_out(jobs, one, forks=forks, cancel=cancel, on_done=done)
    fleet, unable, problem, hint = _fleet(target, answers.good)
    verdicts = tuple(steps.judge_all(steps.chosen(), fleet, target.hosts))
    unreachable = {host: error for host, error in answers.bad.items() if host in target.hosts}
    unable = {host: error for host, error in unable.items() if host in target.hosts}
    return Reading(fleet, verdicts, unreachable, problem, unable, hint)


def apply(
    target: Target,
    reading: Reading,
    remotes: Mapping[str, Remote],
    forks: int,
    cancel: threading.Event,
    doing: Doing,
) -> tuple[Reading, dict[str, Applied]]:
    """Carry out what is pending on every host, and read the hosts again; the second reading decides."""
    waiting = list(reading.hosts_with_changes)

    def told(host: str, step: str, progress: str) -> None:
        doing(f"applying ({step} on {host}: {progress})", list(waiting))

    paced = Paced(steps.chosen(), cancel, told)

    def one(host: str) -> Applied:
        return _apply_on(host, reading, remotes[host], paced)

    def done(alias: str) -> None:
        waiting.remove(alias)
        doing("applying", waiting)

    doing("applying", waiting)
    answers = fan_out({host: host for host in waiting}, one, forks=forks, cancel=cancel, on_done=done)
    applied = {**answers.good, **{host: Applied({}, error.message) for host, error in answers.bad.items()}}
    again = read(target, remotes, forks, cancel, doing)
    settled = steps.settled(reading.verdicts, again.verdicts)
    verdicts = tuple(_with_words(each, applied.get(each.host), again.fleet) for each in settled)
    return replace(again, verdicts=verdicts), applied


def _apply_on(host: str, reading: Reading, remote: Remote, paced: Paced) -> Applied:
    """All lines of one host, those for root in one script and the others in another; then what takes long."""
    by_name = {step.name: step for step in steps.chosen()}
    changes = [(by_name[each.name], each.fix) for each in reading.pending(host)]
    quick = run_lines(remote, [each for each in changes if each[0].pace is None], "applying")
    slow = {step.name: paced.run(remote, step, lines) for step, lines in changes if step.pace}
    return Applied({**quick.steps, **slow})


def run_lines(remote: Remote, changes: Sequence[tuple[Step, Sequence[str]]], doing: str) -> Applied:
    """Run each step's lines; a step whose lines fail does not keep the others from running."""
    results: dict[str, str] = {}
    for root in (True, False):
        chosen = [(step.name, lines) for step, lines in changes if step.root is root and lines]
        if not chosen:
            continue
        token = secrets.token_hex(8)
        result = remote.run(script(chosen, token), timeout=APPLY_TIMEOUT_S, sudo=root, doing=doing)
        results.update(outcome(result.text, token, [name for name, _ in chosen]))
    return Applied(results)


def _with_words(verdict: Verdict, applied: Applied | None, fleet: Fleet) -> Verdict:
    """A failed fix says why, in words that its step makes of its own last ones."""
    said = applied.words(verdict.name) if applied and verdict.status == "failed" else ""
    step = next(step for step in steps.chosen() if step.name == verdict.name)
    return step.blame(said, verdict, fleet) if said else verdict


def _fleet(target: Target, facts: Mapping[str, Facts]) -> tuple[Fleet, Mapping[str, HostError], str, str]:
    """All members with their facts, those that can arranged as one job; who cannot, why none can, a hint."""
    members = {each.alias: each for each in target.members}
    answering = [each for each in target.members if each.alias in facts]
    made, unable, problem, hint = _arranged(answering, facts)
    fleet = Fleet(members, facts, made, target.tables, target.permissions, groups=target.groups)
    return fleet, unable, problem, hint


def _arranged(
    answering: Sequence[Settings], facts: Mapping[str, Facts]
) -> tuple[Topology | None, Mapping[str, HostError], str, str]:
    """A job of those that can take part; where no ports are left, one whose check can say what is there."""
    problem = hint = ""
    for in_use in (True, False):
        try:
            arranged, unable = topology.arrange_able(answering, facts, "preflight", in_use=in_use)
            return (arranged.topology if arranged else None), unable, problem, hint
        except TopologyError as error:
            if not problem:
                problem, hint = error.message, error.hint
            if not isinstance(error, PortsTaken):
                break
    return None, {}, problem, hint
