"""A step: one desired property of hosts, and the verdict that follows from desired and actual.

A step only states facts. What is shown (`--check`, `--diff`, `--json`), what would be changed and how it ends
all follow from its two dicts in the same keys and its lines of shell, which nothing here ever runs.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, cast

from clusterkit import tables
from clusterkit.errors import ExitCode, worst
from clusterkit.facts import NEEDS_ROOT, Facts, Probe, ProbeFailed
from clusterkit.inventory.model import Settings
from clusterkit.planning.topology import Node, Topology
from clusterkit.probes.host import HOST, HostFacts
from clusterkit.steps.agreement import Groups, agreements, of_host
from clusterkit.tables import Tables

V = TypeVar("V")

Status = Literal["ok", "changed", "warning", "pending", "manual", "failed", "unknown", "skipped"]
Severity = Literal["warning", "manual", "failed"]
Scalar = str | int | float | bool | None
State = Mapping[str, "Scalar | tuple[str, ...] | Requirement"]

# Preflight asks every step. One that a job cannot do without carries this tag: `launch` asks it too.
LAUNCH = "launch"
# Of those the ones without which there is no plan at all: asked also of a launch that skips the checks.
PLAN = "plan"

_TAKES_ROOT = "echo it takes root: write ansible_become=true for {}; exit 1"

# What the verdict means for the command's exit code; everything else is fine.
_EXIT: Mapping[str, ExitCode] = {
    "failed": ExitCode.FAILED,
    "manual": ExitCode.FAILED,
    "unknown": ExitCode.FAILED,
    "pending": ExitCode.PENDING,
}


class Requirement(Protocol):
    """A desired value that is not one value, such as "at least 1"; `str()` is how it reads."""

    def met_by(self, actual: Any) -> bool:
        """True if `actual` is as desired."""


@dataclass(frozen=True)
class AtLeast:
    """A number that must be reached."""

    bound: float

    def met_by(self, actual: Any) -> bool:
        """True from the bound upwards; None (nothing there) is too little."""
        return actual is not None and actual >= self.bound

    def __str__(self) -> str:
        return f"at least {self.bound:g}"


@dataclass(frozen=True)
class AtMost:
    """A number that must not be passed."""

    bound: float

    def met_by(self, actual: Any) -> bool:
        """True up to the bound."""
        return actual is not None and actual <= self.bound

    def __str__(self) -> str:
        return f"at most {self.bound:g}"


@dataclass(frozen=True)
class Recorded:
    """Anything is as desired: the value is only there to be read in the report."""

    def met_by(self, actual: Any) -> bool:
        """Always true."""
        return True

    def __str__(self) -> str:
        return "anything"


@dataclass(frozen=True)
class VersionAtLeast:
    """A version that must be reached, compared number by number: 2.10 is newer than 2.9."""

    bound: str

    def met_by(self, actual: Any) -> bool:
        """True from this version on; None (not installed) is too little."""
        return actual is not None and version_key(actual) >= version_key(self.bound)

    def __str__(self) -> str:
        return f"{self.bound} or newer"


def version_key(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: `2.6.2.post118` is (2, 6, 2)."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


@dataclass(frozen=True)
class Permissions:
    """What the user allows beyond ordinary changes.

    `install`: packages from the host's own sources. `images`: reset removes images that preflight pulled.
    """

    install: bool = False
    images: bool = False


@dataclass(frozen=True)
class Pace:
    """For lines that take minutes and load what all hosts share: how many hosts at a time.

    `progress` is a shell filter: it makes one line of what the lines have printed so far.
    """

    at_once: int
    progress: str


@dataclass(frozen=True)
class Fleet:
    """All hosts at once, so that "the same as on the others" is a step like any other.

    `topology` is None where no run is planned (preflight of hosts that do not make up a job yet). `site` are
    the tables with the site's own entries, None for those that are shipped. With `starting` a job is about to
    start, on perhaps a part of the inventory: only what would keep it from running counts. `groups` are those
    of the inventory with all their hosts; without them every host is compared with every other.
    """

    members: Mapping[str, Settings]
    facts: Mapping[str, Facts]
    topology: Topology | None = None
    site: Tables | None = None
    permissions: Permissions = field(default_factory=Permissions)
    starting: bool = False
    groups: Groups = field(default_factory=dict)

    # What was read off every host once, by what read it: 256 hosts are compared with 256.
    _each: dict[Any, dict[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _once: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.alias: node for node in self.topology.nodes} if self.topology else {}

    @cached_property
    def tables(self) -> Tables:
        """Driver versions and error numbers, read when a step asks for them."""
        return self.site or tables.load()

    def once(self, read: Callable[[Fleet], V]) -> V:
        """What `read` (a function of a module) finds in the whole fleet, found out once for all hosts."""
        if read not in self._once:
            self._once[read] = read(self)
        return cast(V, self._once[read])

    def node(self, host: str) -> Node | None:
        """The host's node in the planned run, None without one."""
        return self._nodes.get(host)

    def each(self, read: Callable[[Facts], V | None]) -> Mapping[str, V]:
        """What `read` finds in each host's facts, in inventory order, without those where it finds None.

        `read` must be a function of a module: what it found is remembered by it.
        """
        if read not in self._each:
            found = {host: read(facts) for host, facts in self.facts.items()}
            self._each[read] = {host: value for host, value in found.items() if value is not None}
        return self._each[read]

    def majority(self, read: Callable[[Facts], V | None]) -> V | None:
        """The value that most hosts have; of equally many, the one of the first host. None without any."""
        values = self.each(read)
        counted = Counter(values.values())
        return max(values.values(), key=lambda value: counted[value], default=None)

    def agreed(self, host: str, read: Callable[[Facts], V | None]) -> list[V]:
        """What the host's groups have agreed on, as the vote has it; [] where none of them has."""
        key = (agreements, read)
        if key not in self._once:
            self._once[key] = agreements(self.each(read), self.groups)
        return of_host(host, self._once[key], self.groups)

    def usual(self, host: str, read: Callable[[Facts], V | None]) -> V | None:
        """What the host should have where groups may differ: its groups' value, else the majority's."""
        own, value = self.agreed(host, read), self.each(read).get(host)
        if own:
            return value if value in own else own[0]
        return self.majority(read)


@dataclass(frozen=True)
class Change:
    """One host × one step that differs, in `keys`."""

    host: str
    fleet: Fleet
    desired: State
    actual: State
    keys: tuple[str, ...]

    @property
    def settings(self) -> Settings:
        """The host's variables."""
        return self.fleet.members[self.host]

    @property
    def facts(self) -> Facts:
        """The host's facts."""
        return self.fleet.facts[self.host]


class Step:
    """One desired property of a host. Subclasses state `desired` and `actual` in the same keys, both pure.

    `probes` are all that it reads. `unknown` is the status where one of them failed. The rest may be
    overridden: `skip`, `fix`, `severity`, `explain`, `hint`, `blame`.
    """

    name: str = ""
    tags: frozenset[str] = frozenset()
    # Whether the lines of `fix` and `undo` are for root (the inventory permits that with `ansible_become`).
    root: bool = True
    probes: tuple[Probe[Any], ...] = ()
    unknown: Status = "unknown"
    pace: Pace | None = None
    # Whether the report says why the step was skipped: where a person wonders why nothing was changed.
    tells_why: bool = False

    def skip(self, host: str, fleet: Fleet) -> str:
        """Why the step does not apply to this host; "" if it does."""
        return ""

    def desired(self, host: str, fleet: Fleet) -> State:
        """What should be."""
        raise NotImplementedError

    def actual(self, host: str, fleet: Fleet) -> State:
        """What is, in the same keys. May raise ProbeFailed: the verdict is then `unknown`."""
        raise NotImplementedError

    def fix(self, change: Change) -> list[str]:
        """Shell lines that close the gap, each value quoted; [] if it takes a person."""
        return []

    def undo(self, host: str, fleet: Fleet) -> list[str]:
        """Shell lines that take back what `fix` left, found by its mark; [] if nothing is there."""
        return []

    def severity(self, change: Change) -> Severity:
        """How bad it is where there is no fix."""
        return "failed"

    def explain(self, change: Change) -> str:
        """What is wrong, in one line."""
        return "; ".join(f"{key} is {change.actual[key]}, not {change.desired[key]}" for key in change.keys)

    def hint(self, change: Change) -> str:
        """What to do next, in one line."""
        return ""

    def blame(self, said: str, verdict: Verdict, fleet: Fleet) -> Verdict:
        """The verdict after lines of `fix` that failed, told with their last words."""
        return replace(verdict, message=f"{said}; {verdict.message}")


@dataclass(frozen=True)
class Verdict:
    """How one step stands on one host; `fix` are the shell lines that would close the gap.

    `told`: that it was skipped, and why, is worth a line to people.
    """

    host: str
    name: str
    status: Status
    desired: Mapping[str, Any] = field(default_factory=dict)
    actual: Mapping[str, Any] = field(default_factory=dict)
    changed_keys: tuple[str, ...] = ()
    message: str = ""
    hint: str = ""
    fix: tuple[str, ...] = ()
    told: bool = False

    @property
    def differences(self) -> tuple[str, ...]:
        """`KEY: ACTUAL → DESIRED` for each key that differs, in words."""
        return _differences(self.changed_keys, self.actual, self.desired)

    def as_json(self) -> dict[str, Any]:
        """An entry of `hosts.ALIAS.checks`, as design.md's JSON has it."""
        return {
            "name": self.name,
            "status": self.status,
            "desired": dict(self.desired),
            "actual": dict(self.actual),
            "changed_keys": list(self.changed_keys),
            "message": self.message,
            "hint": self.hint,
        }


def judge(step: Step, host: str, fleet: Fleet) -> Verdict:
    """The verdict of one step on one host (pure)."""
    try:
        reason = step.skip(host, fleet)
        if reason:
            return Verdict(host, step.name, "skipped", message=reason, told=step.tells_why)
        desired, actual = step.desired(host, fleet), step.actual(host, fleet)
    except ProbeFailed as error:
        return Verdict(host, step.name, step.unknown, message=error.message, hint=error.hint or _look(error))
    keys = tuple(key for key in desired if not _satisfied(desired[key], actual[key]))
    verdict = Verdict(host, step.name, "ok", _shown(desired), _shown(actual), keys)
    if not keys:
        return verdict
    change = Change(host, fleet, desired, actual, keys)
    fix = tuple(step.fix(change))
    status: Status = "pending" if fix else step.severity(change)
    verdict = replace(verdict, status=status, message=step.explain(change), hint=step.hint(change), fix=fix)
    if fix and step.root and not may_be_root(host, fleet):
        hint = "write ansible_become=true for it: preflight does this as root"
        return replace(verdict, status="manual", hint=hint, fix=())
    return verdict


def may_be_root(host: str, fleet: Fleet) -> bool:
    """True if the login is root, or the inventory permits to become root."""
    who = fleet.facts[host].values.get(HOST.name)
    return fleet.members[host].become or (isinstance(who, HostFacts) and who.uid == 0)


def judge_all(steps: Iterable[Step], fleet: Fleet, hosts: Collection[str] | None = None) -> list[Verdict]:
    """Every step's verdict on every host whose facts are there, and that is among `hosts`.

    By host in inventory order, then by step.
    """
    listed = list(steps)
    judged = [host for host in fleet.members if host in fleet.facts and (hosts is None or host in hosts)]
    return [judge(step, host, fleet) for host in judged for step in listed]


def undone(steps: Iterable[Step], host: str, fleet: Fleet) -> dict[str, list[str]]:
    """For each step that left something on the host, the lines that take it back; an unread fact has none."""
    found = {}
    for step in steps:
        try:
            lines = step.undo(host, fleet)
        except ProbeFailed:
            continue
        if lines:
            permitted = not step.root or may_be_root(host, fleet)
            found[step.name] = lines if permitted else [_TAKES_ROOT.format(shlex.quote(host))]
    return found


def unseen(steps: Iterable[Step], host: str, fleet: Fleet) -> dict[str, str]:
    """For each step that may have left something which could not be looked for: why not."""
    found = {}
    for step in steps:
        try:
            step.undo(host, fleet)
        except ProbeFailed as error:
            found[step.name] = f"{error.message}: {error.hint or _look(error)}"
    return found


def settled(before: Sequence[Verdict], after: Sequence[Verdict]) -> list[Verdict]:
    """The second reading decides: pending and now ok is `changed`, still not ok is `failed`."""
    pending = {(verdict.host, verdict.name): verdict for verdict in before if verdict.status == "pending"}
    return [_settled(pending.get((verdict.host, verdict.name)), verdict) for verdict in after]


def _settled(before: Verdict | None, after: Verdict) -> Verdict:
    if before is None:
        return after
    if after.status == "ok":
        keys = before.changed_keys
        parts = _differences(keys, before.actual, after.actual)
        return replace(after, status="changed", changed_keys=keys, message="; ".join(parts))
    return replace(after, status="failed") if after.status == "pending" else after


def exit_code(verdicts: Iterable[Verdict], strict: bool = False) -> int:
    """0, 1 (failed, by hand, unknown; with `strict` warnings too) or 3 (pending); 1 before 3."""
    codes = [_EXIT.get(verdict.status, ExitCode.OK) for verdict in verdicts]
    return worst(codes) or (ExitCode.FAILED if strict and "warning" in counts(verdicts) else ExitCode.OK)


def counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How many verdicts there are of each status."""
    return dict(Counter(verdict.status for verdict in verdicts))


def _satisfied(desired: Any, actual: Any) -> bool:
    return bool(desired.met_by(actual)) if hasattr(desired, "met_by") else bool(desired == actual)


def _shown(state: State) -> dict[str, Any]:
    return {key: str(value) if hasattr(value, "met_by") else _plain(value) for key, value in state.items()}


def _differences(keys: Iterable[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{key_in_words(key)}: {in_words(before.get(key))} → {in_words(after.get(key))}" for key in keys
    )


def key_in_words(key: str) -> str:
    """A key of a verdict as a person reads it; one that is a path or a program stays as it is."""
    return key.replace("_", " ") if key.isidentifier() else key


def in_words(value: Any) -> str:
    """A value of a verdict as a person reads it."""
    if value is None or value in ([], ""):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _look(error: ProbeFailed) -> str:
    if error.status == NEEDS_ROOT:
        return "write ansible_become=true for it, and use --ask-become-pass where sudo wants a password"
    return f"look at {error.host} by hand, then try again"
