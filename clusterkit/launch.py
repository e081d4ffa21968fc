"""Use case: start one training job on all nodes at once, and stay with it to its end.

    prepare.py   facts → checks → topology → plan      reads the hosts, writes nothing
    staging.py   agent, plan, key, secrets, code        on every host, or nothing starts
    job.py       gate → start together → follow → gather

Nobody starts before everybody is staged: the supervisors wait at a gate, node 0's supervisor opens it for all
(docs/architecture.md, "The channel between the nodes"). From then on the job needs nobody here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from clusterkit import tables
from clusterkit.errors import ClusterkitError, FleetError, Interrupted, named
from clusterkit.interrupts import Interrupts
from clusterkit.job import Job, NeverStarted
from clusterkit.prepare import Prepared
from clusterkit.remote.protocol import Remote
from clusterkit.replacing import NextAttempt, Reserve, broken_gpus, history, plan_next, without_unfit
from clusterkit.runs.events import Event
from clusterkit.runs.record import NodeRecord, RunRecord, RunStore, reach
from clusterkit.runs.status import Observed, document
from clusterkit.runs.watch import Tell, restarted
from clusterkit.staging import Manner, stage, take_back
from clusterkit.stop import stop

__all__ = ["Manner", "launch"]


def launch(
    prepared: Prepared,
    remotes: Mapping[str, Remote],
    store: RunStore,
    interrupts: Interrupts,
    manner: Manner,
    tell: Tell,
    reserve: Reserve | None = None,
) -> dict[str, Any]:
    """Run the prepared job; returns its final status document (or, detached, the one at its start).

    With a `reserve` of spares, a host that is gone is replaced, and the run goes on as its next attempt.
    Raises FleetError if a host cannot be staged (nothing has started then), Interrupted, ClusterkitError.
    """
    record = _record(prepared)
    store.save(record)
    tell(Event("planned", record.run_id, prepared.plan.as_json(show_env=False)))
    try:
        record = stage(prepared, record, remotes, interrupts.cancel, manner, tell)
        store.save(record)
        job = Job(record, remotes, store, interrupts, manner, tell)
        if reserve is not None:
            job.examine = _examiner(record, prepared, remotes, reserve)
        status = job.run()
    except NeverStarted as never:
        take_back(record, remotes, manner.forks, tell, never.error)
        _close_record(store, record, never.error)
        raise never.error from None
    except ClusterkitError as error:
        if store.load(record.run_id).state in ("planned", "staging"):
            take_back(record, remotes, manner.forks, tell, error)
            _close_record(store, record, error)
        raise
    if reserve is not None:
        attempts = _FurtherAttempts(remotes, store, interrupts, manner, tell)
        job, status = attempts.run(job, status, prepared, reserve)
    if not job.detached:
        tell(Event("ended", record.run_id, status))
    return status


def _examiner(
    record: RunRecord, prepared: Prepared, remotes: Mapping[str, Remote], reserve: Reserve
) -> Callable[[], Mapping[str, str]]:
    return lambda: broken_gpus(record, prepared.settings, remotes, reserve.order.tables or tables.load())


class _NotBegun(Exception):
    """The next attempt could not be staged, or its gate did not open."""

    def __init__(self, error: ClusterkitError) -> None:
        super().__init__(error.message)
        self.error = error


class _FurtherAttempts:
    """Attempts on other hosts than the one before; the supervisors see to those on the same hosts."""

    def __init__(
        self,
        remotes: Mapping[str, Remote],
        store: RunStore,
        interrupts: Interrupts,
        manner: Manner,
        tell: Tell,
    ) -> None:
        self._remotes = remotes
        self._store = store
        self._interrupts = interrupts
        self._manner = manner
        self._tell = tell

    def run(
        self, job: Job, status: dict[str, Any], prepared: Prepared, reserve: Reserve
    ) -> tuple[Job, dict[str, Any]]:
        """Replace hosts that are gone until the job ends in another way; the last job and its end."""
        while not job.detached and not self._interrupts.count:
            decided = job.watch.decision
            try:
                found = plan_next(job.record, prepared, status, decided, reserve, self._tell)
            except Interrupted as error:
                return job, self._given_up(job.record, status, error)
            if found is None:
                break
            record = self._record(job.record, found, status, decided)
            data = restarted(record.attempt, decided["cause"])
            self._tell(Event("restarted", record.run_id, {**data, "replaced": dict(found.stand_ins)}))
            try:
                job, status = self._begun(found, record)
            except _NotBegun as failed:
                left = without_unfit(record, found, reserve, failed.error, self._tell)
                if left is None:
                    return job, self._given_up(record, status, failed.error)
                stop(record, self._remotes, self._store, grace=0.0, forks=self._manner.forks)
                reserve = left
                continue
            prepared, reserve = found.prepared, found.reserve
        if job.detached:
            text = "spares need a controller: a host that is lost from now on is not replaced"
            self._tell(Event("notice", job.record.run_id, {"text": text}))
        return job, status

    def _begun(self, found: NextAttempt, record: RunRecord) -> tuple[Job, dict[str, Any]]:
        """The attempt's job and how it ended. Raises _NotBegun where no node has started anything."""
        try:
            record = stage(
                found.prepared, record, self._remotes, self._interrupts.cancel, self._manner, self._tell
            )
            self._store.save(record)
            job = Job(record, self._remotes, self._store, self._interrupts, self._manner, self._tell)
            job.examine = _examiner(record, found.prepared, self._remotes, found.reserve)
            return job, job.run()
        except NeverStarted as never:
            raise _NotBegun(never.error) from None
        except ClusterkitError as error:
            if self._store.load(record.run_id).state != "staging":
                raise
            raise _NotBegun(error) from None

    def _record(
        self, before: RunRecord, found: NextAttempt, status: Mapping[str, Any], decided: Mapping[str, Any]
    ) -> RunRecord:
        """The run's record with the hosts of its next attempt."""
        attempt = int(status["attempt"]) + 1
        begun = {
            "state": "staging",
            "attempt": attempt,
            "attempts": status["attempts"],
            "history": history(decided),
        }
        record = replace(_record(found.prepared), created_at=before.created_at, status=begun)
        self._store.save(record)
        return record

    def _given_up(self, record: RunRecord, status: dict[str, Any], error: ClusterkitError) -> dict[str, Any]:
        """The next attempt did not come about: nothing of it is left, and the run has ended as before."""
        stop(record, self._remotes, self._store, grace=0.0, forks=self._manner.forks)
        ended = dict(status)
        if isinstance(error, Interrupted):
            ended.update(state="stopped", exit_code=int(error.exit_code), cause="user")
            ended["reason"] = f"interrupted by the user after {status['reason']}"
        else:
            text = f"the next attempt could not be started: {_in_one_line(error)}"
            self._tell(Event("notice", record.run_id, {"text": text}))
        self._store.save(replace(record, status=ended))
        return ended


def _record(prepared: Prepared) -> RunRecord:
    plan = prepared.plan
    nodes = tuple(
        NodeRecord(
            host=node.alias,
            node_rank=node.node_rank,
            node_ip=node.node_ip,
            ranks=node.ranks,
            python=node.python,
            run_dir=node.run_dir,
            workdir=node.workdir,
            log_dir=node.log_dir,
            rank_log=node.rank_log,
            servers=node.servers,
            reach=reach(prepared.settings[node.alias]),
            clock_offset_s=prepared.clock_offsets.get(node.alias, 0.0),
            devices=node.node.devices,
            container=node.container.name if node.container else "",
        )
        for node in plan.nodes
    )
    return RunRecord(
        run_id=plan.run_id,
        inventory=str(prepared.inventory),
        script=plan.script,
        args=plan.args,
        created_at=time.time(),
        nodes=nodes,
        versions=prepared.versions,
        grace=plan.grace,
        status={"state": "staging"},
    )


def _close_record(store: RunStore, record: RunRecord, error: ClusterkitError) -> None:
    state = "stopped" if isinstance(error, Interrupted) else "failed"
    cause = "user" if isinstance(error, Interrupted) else "clusterkit"
    code = int(error.exit_code)
    status = {
        **document(record, {node.host: Observed(None) for node in record.nodes}),
        "state": state,
        "attempts": [
            {"attempt": 0, "state": state, "exit_code": code, "cause": cause, "reason": _in_one_line(error)}
        ],
        "exit_code": code,
        "cause": cause,
        "reason": _in_one_line(error),
    }
    store.save(replace(record, status=status))


def _in_one_line(error: ClusterkitError) -> str:
    """The error, with each host's own part: this is all that the record keeps of it."""
    if not isinstance(error, FleetError):
        return error.message
    parts = "; ".join(named(host, each.message) for host, each in error.failures.items())
    return f"{error.message} ({parts})"
