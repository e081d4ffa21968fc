"""A run's next attempt with spares in the place of hosts that are gone: chosen, checked and planned.

Needs a controller, since a spare has to be reached, looked at and given the code; restarts on the same hosts
need none (docs/architecture.md, "Attempts").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clusterkit.errors import (
    ClusterkitError,
    FleetError,
    HostError,
    Interrupted,
    NodeError,
    TopologyError,
    named,
)
from clusterkit.facts import Facts, gather
from clusterkit.inventory.model import Settings
from clusterkit.prepare import ChecksFailed, Order, Prepared
from clusterkit.probes.gpu_errors import GPU_ERRORS
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs.events import Event
from clusterkit.runs.record import RunRecord
from clusterkit.runs.watch import Tell
from clusterkit.tables import Tables

# How long a host may take to say what its kernel log has about its GPUs.
EXAMINE_S = 15.0

# An order, the run it continues → its plan; raises what `prepare` raises.
Prepare = Callable[[Order, str], Prepared]


@dataclass(frozen=True)
class Reserve:
    """The spares that no attempt has used yet, and what it takes to plan with one of them."""

    order: Order
    spares: tuple[Settings, ...]
    prepare: Prepare


@dataclass(frozen=True)
class NextAttempt:
    """`stand_ins`: for each host that is gone the spare in its place."""

    prepared: Prepared
    reserve: Reserve
    stand_ins: Mapping[str, str]


class Unfit(ClusterkitError):
    """A spare has another number of ranks than the host that it should replace."""

    def __init__(self, spare: str, message: str) -> None:
        super().__init__(message)
        self.spare = spare


def gone(status: Mapping[str, Any], decided: Mapping[str, Any]) -> list[str]:
    """The hosts without which the run cannot go on: lost, not reachable from here, or with a broken GPU."""
    if status["state"] != "lost":
        return []
    cause = decided.get("cause") or {}
    return [
        node["host"]
        for node in status["nodes"]
        if node["state"] == "lost" or node["error"] or node["host"] == cause.get("alias")
    ]


def history(decided: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How the run's attempts have ended, the last one too; what a launcher said is left out."""
    cause = dict(decided.get("cause") or {})
    cause["detail"] = str(cause.get("detail") or "").partition("\n")[0][:300]
    last = {
        "attempt": decided.get("attempt", 0),
        "outcome": decided.get("outcome"),
        "cause": cause,
        "wait": 0,
    }
    return [*decided.get("history", []), last]


def plan_next(
    record: RunRecord,
    prepared: Prepared,
    status: Mapping[str, Any],
    decided: Mapping[str, Any],
    reserve: Reserve,
    tell: Tell,
) -> NextAttempt | None:
    """The plan of the next attempt, the same rank table with spares in it; None where there can be none.

    A spare that does not answer, that the checks refuse, or that has other ranks is left out, and named.
    Raises Interrupted.
    """
    missing, attempts = gone(status, decided), reserve.order.attempts
    attempt = int(status["attempt"]) + 1
    if not missing or attempt > attempts.max_restarts:
        return None
    begun = replace(attempts, first=attempt, history=tuple(history(decided)))
    spares = list(reserve.spares)
    while len(spares) >= len(missing):
        chosen = dict(zip(missing, spares, strict=False))
        order = replace(_with(reserve.order, chosen), attempts=begun)
        names = ", ".join(f"{spare.alias} in the place of {host}" for host, spare in chosen.items())
        _say(tell, record, f"attempt {attempt}: checking {names}")
        try:
            made = reserve.prepare(order, record.run_id)
            _refuse_other_ranks(prepared, made)
        except Interrupted:
            raise
        except ClusterkitError as error:
            at_fault = _at_fault(error, [spare.alias for spare in chosen.values()])
            for alias, why in at_fault.items():
                _say(tell, record, f"spare {named(alias, why)}; it is left out")
            if not at_fault:
                _say(tell, record, f"attempt {attempt} cannot be planned: {error.message}")
                return None
            spares = [spare for spare in spares if spare.alias not in at_fault]
            continue
        left = tuple(spare for spare in spares if spare not in chosen.values())
        stand_ins = {host: spare.alias for host, spare in chosen.items()}
        return NextAttempt(made, replace(reserve, order=order, spares=left), stand_ins)
    _say(tell, record, f"no spare is left for {', '.join(missing)}")
    return None


def without_unfit(
    record: RunRecord, found: NextAttempt, before: Reserve, error: ClusterkitError, tell: Tell
) -> Reserve | None:
    """The reserve without the stand-ins that could not begin the attempt; None if another host failed.

    A spare that passed the checks may still have no room for the code, or be taken by another run.
    """
    at_fault = _at_fault(error, list(found.stand_ins.values()))
    failed = set(error.failures) if isinstance(error, FleetError) else set(at_fault)
    if not at_fault or failed - set(at_fault):
        return None
    for alias, why in at_fault.items():
        _say(tell, record, f"spare {named(alias, why)}; it is left out")
    able = [each for each in found.stand_ins.values() if each not in at_fault]
    spares = (*(found.prepared.settings[each] for each in able), *found.reserve.spares)
    return replace(before, spares=spares)


def broken_gpus(
    record: RunRecord, settings: Mapping[str, Settings], remotes: Mapping[str, Remote], tables: Tables
) -> dict[str, str]:
    """What the driver reports of GPUs that are not fit for a job any more (data/xids.toml), by host.

    A host that does not answer in time, or whose kernel log nobody may read, is not in it.
    """

    def one(each: Settings) -> Facts:
        return gather(remotes[each.alias], each, (GPU_ERRORS,), timeout=EXAMINE_S)

    hosts = {node.host: settings[node.host] for node in record.nodes}
    found = {}
    for host, facts in fan_out(hosts, one, forks=len(hosts)).good.items():
        for error in facts.get(GPU_ERRORS) or ():
            of_switch = tables.sxid(error.code, fatal=error.fatal)
            meaning = of_switch if error.switch else tables.xid(error.code)
            if meaning.status == "failed":
                kind = "SXid" if error.switch else "Xid"
                found[host] = f"{kind} {error.code} at PCI {error.bus}: {error.text[:120]}"
    return found


def _with(order: Order, chosen: Mapping[str, Settings]) -> Order:
    """The order with each host that is gone replaced, in its place and with its role."""
    members = {each.alias: chosen.get(each.alias, each) for each in order.members}
    roles = order.roles and {members[alias].alias: role for alias, role in order.roles.items()}
    return replace(order, members=tuple(members.values()), roles=roles)


def _refuse_other_ranks(before: Prepared, made: Prepared) -> None:
    """Raise Unfit where the rank table would change. In parameter-server mode a spare takes over its role."""
    for old, new in zip(before.plan.nodes, made.plan.nodes, strict=True):
        if old.ranks != new.ranks:
            words = (
                f"has {len(new.ranks)} ranks, and {old.alias}, which it should replace, has {len(old.ranks)}"
            )
            raise Unfit(new.alias, words)


def _at_fault(error: ClusterkitError, spares: Sequence[str]) -> dict[str, str]:
    """Which of the spares the error is about, and what it says about each."""
    said: dict[str, str] = {}
    if isinstance(error, FleetError):
        said = {host: each.message for host, each in error.failures.items()}
    elif isinstance(error, ChecksFailed):
        said = {verdict.host: f"{verdict.name}: {verdict.message}" for verdict in error.verdicts}
    elif isinstance(error, (HostError, NodeError)):
        said = {error.host: error.message}
    elif isinstance(error, Unfit):
        said = {error.spare: error.message}
    elif isinstance(error, TopologyError):
        said = dict.fromkeys(spares, error.message)
    return {host: words for host, words in said.items() if host in spares}


def _say(tell: Tell, record: RunRecord, text: str) -> None:
    tell(Event("notice", record.run_id, {"text": text}))
