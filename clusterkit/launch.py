"""Use case: start one training job on all nodes at once, and stay with it to its end.

    prepare.py   facts → checks → topology → plan      reads the hosts, writes nothing
    staging.py   agent, plan, key, secrets, code        on every host, or nothing starts
    job.py       gate → start together → follow → gather

Nobody starts before everybody is staged: the supervisors wait at a gate, node 0's supervisor opens it for all
(docs/architecture.md, "The channel between the nodes"). From then on the job needs nobody here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clusterkit.errors import ClusterkitError, FleetError, Interrupted, named
from clusterkit.interrupts import Interrupts
from clusterkit.job import Job, NeverStarted
from clusterkit.prepare import Prepared
from clusterkit.remote.protocol import Remote
from clusterkit.runs.events import Event
from clusterkit.runs.record import NodeRecord, RunRecord, RunStore, reach
from clusterkit.runs.status import Observed, document
from clusterkit.runs.watch import Tell
from clusterkit.staging import Manner, stage, take_back

__all__ = ["Manner", "launch"]


def launch(
    prepared: Prepared,
    remotes: Mapping[str, Remote],
    store: RunStore,
    interrupts: Interrupts,
    manner: Manner,
    tell: Tell,
) -> dict[str, Any]:
    """Run the prepared job; returns its final status document (or, detached, the one at its start).

    Raises FleetError if a host cannot be staged (nothing has started then), Interrupted, ClusterkitError.
    """
    record = _record(prepared)
    store.save(record)
    tell(Event("planned", record.run_id, prepared.plan.as_json(show_env=False)))
    try:
        record = stage(prepared, record, remotes, interrupts.cancel, manner, tell)
        store.save(record)
        return Job(record, remotes, store, interrupts, manner, tell).run()
    except NeverStarted as never:
        take_back(record, remotes, manner.forks, tell, never.error)
        _close_record(store, record, never.error)
        raise never.error from None
    except ClusterkitError as error:
        if store.load(record.run_id).state in ("planned", "staging"):
            take_back(record, remotes, manner.forks, tell, error)
            _close_record(store, record, error)
        raise


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
        "attempts": [{"attempt": 0, "state": state, "exit_code": code}],
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
