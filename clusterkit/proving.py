"""Use case: everything that only shows between the hosts, after each host was read and brought to its state.

    connect proof, path, round trips (and bandwidth)   between/proof.py
    a token on every shared mount, and a write test    between/token.py, between/writes.py
    the vote on what should be equal                   between/vote.py
    a small all-reduce                                 smoke.py

What writes or loads (token, smoke, bandwidth) is `skipped` where nothing may be changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from clusterkit import between, steps
from clusterkit.between import Matrix, VoteEntry
from clusterkit.between.connections import NAME as CONNECT
from clusterkit.between.token import NAME as SHARED_MOUNT
from clusterkit.errors import ExitCode, worst
from clusterkit.interrupts import Interrupts
from clusterkit.preflight import Doing, Finding, Reading, Target
from clusterkit.remote.protocol import Remote
from clusterkit.smoke import Smoke, smoke
from clusterkit.steps import Verdict
from clusterkit.steps.applying import Applied
from clusterkit.steps.firewall import Firewall
from clusterkit.steps.storage import shared_paths


@dataclass(frozen=True)
class Wanted:
    """Which proofs: `check` forbids what writes or loads."""

    check: bool = False
    all_pairs: bool = False
    bandwidth: bool = False
    smoke: bool = False
    forks: int = 64


@dataclass(frozen=True)
class Proofs:
    """What was found between the hosts, and how the votes ended."""

    findings: tuple[Finding, ...] = ()
    votes: tuple[VoteEntry, ...] = ()
    bandwidth: Matrix | None = None
    smoke: Smoke | None = None


@dataclass(frozen=True)
class Result:
    """A whole preflight: the last reading, what was applied to get there, and the proofs."""

    reading: Reading
    applied: Mapping[str, Applied] = field(default_factory=dict)
    proofs: Proofs = field(default_factory=Proofs)
    elapsed_s: float = 0.0

    @property
    def statuses(self) -> list[steps.Verdict]:
        """Every verdict, with findings and votes as verdicts of no host: what the exit code follows from."""
        found = [Verdict("", each.name, each.status) for each in self.proofs.findings]
        voted = [Verdict("", each.fact, each.status) for each in self.proofs.votes]
        return [*self.reading.verdicts, *found, *voted]

    def exit_code(self, strict: bool) -> int:
        """4 for an unreachable host, else 1 (also where a host cannot take part), else 3 for changes."""
        unreachable = [ExitCode.UNREACHABLE] if self.reading.unreachable else []
        problem = [ExitCode.FAILED] if self.reading.problem or self.reading.unable else []
        return worst([*unreachable, *problem, steps.exit_code(self.statuses, strict)])


def prove(
    inventory: Path,
    target: Target,
    reading: Reading,
    remotes: Mapping[str, Remote],
    wanted: Wanted,
    interrupts: Interrupts,
    doing: Doing,
) -> Proofs:
    """All proofs that are wanted, among the hosts that answered. Raises Interrupted."""
    votes = tuple(_about(each, target.hosts) for each in between.vote(reading.fleet, reading.fleet.groups))
    options = between.Options(
        forks=wanted.forks,
        all_pairs=wanted.all_pairs,
        bandwidth=wanted.bandwidth and not wanted.check,
        blame=between.blame(reading.fleet),
    )
    proof = between.prove(reading.fleet, target.hosts, remotes, options, doing, interrupts.cancel)
    findings = [_excused(each, reading) for each in proof.findings]
    findings += [*_tokens(target, reading, remotes, wanted, interrupts, doing)]
    smoked = _smoke(inventory, target, reading, remotes, wanted, interrupts, doing)
    if smoked is not None:
        findings += smoked.findings
    for name, asked in (("bandwidth", wanted.bandwidth), ("smoke", wanted.smoke)):
        if asked and wanted.check:
            findings.append(Finding(name, "skipped", detail="--check writes and loads nothing"))
    return Proofs(tuple(findings), votes, proof.bandwidth, smoked)


def _about(entry: VoteEntry, hosts: Sequence[str]) -> VoteEntry:
    """All hosts vote, and those are named that this call is about; of a tie both sides."""
    if not set(entry.odd) & set(hosts):
        return replace(entry, odd={}, status="ok", hint="")
    if entry.unique or entry.majority is None:
        return entry
    return replace(entry, odd={host: value for host, value in entry.odd.items() if host in hosts})


def _excused(finding: Finding, reading: Reading) -> Finding:
    """A connection that a pending firewall change will open is pending like that change, not a failure."""
    closed = {
        each.host for each in reading.verdicts if each.status == "pending" and each.name == Firewall.name
    }
    if finding.name != CONNECT or finding.status != "failed" or not {finding.source, finding.to} & closed:
        return finding
    return replace(finding, status="pending", hint="the pending firewall change opens it")


def _tokens(
    target: Target,
    reading: Reading,
    remotes: Mapping[str, Remote],
    wanted: Wanted,
    interrupts: Interrupts,
    doing: Doing,
) -> tuple[Finding, ...]:
    """A token on every path where several hosts have something shared that answers."""
    members = {each.alias: each for each in target.members if each.alias in reading.fleet.facts}
    if wanted.check:
        declared = dict.fromkeys(
            mount.path for host in target.hosts if host in members for mount in members[host].mounts
        )
        return tuple(
            Finding(SHARED_MOUNT, "skipped", detail=f"{path}: --check writes nothing") for path in declared
        )
    mounts = shared_paths(reading.fleet, target.hosts)
    written = between.write(mounts, reading.fleet, remotes, doing, interrupts.cancel, wanted.forks)
    manner = between.Manner(forks=wanted.forks)
    return written + between.share(mounts, members, remotes, doing, interrupts.cancel, manner)


def _smoke(
    inventory: Path,
    target: Target,
    reading: Reading,
    remotes: Mapping[str, Remote],
    wanted: Wanted,
    interrupts: Interrupts,
    doing: Doing,
) -> Smoke | None:
    if not wanted.smoke or wanted.check:
        return None
    if steps.exit_code(reading.verdicts) or reading.problem or reading.unable:
        return Smoke((Finding("smoke", "skipped", detail="checks above do not allow a job to start"),))
    members = [each for each in target.members if each.alias in target.hosts]
    return smoke(inventory, members, remotes, interrupts, doing, wanted.forks)
