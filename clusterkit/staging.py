"""Bring a planned run to its hosts, and take it back: agent, plan, key, secrets and code."""

from __future__ import annotations

import secrets as random_secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clusterkit import agent
from clusterkit.errors import ClusterkitError, CommandFailed, FleetError, HostError, Unreachable
from clusterkit.planning.plan import NodePlan
from clusterkit.prepare import Prepared
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs import onhosts
from clusterkit.runs.events import Event
from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.runs.watch import Tell
from clusterkit.sync import bootstrap, removal, send

CLEANUP_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Manner:
    """How to launch: hosts at once, seconds that one may take to begin, and whether to leave the job."""

    forks: int = 64
    timeout: float = 60.0
    detach: bool = False


def stage(
    prepared: Prepared,
    record: RunRecord,
    remotes: Mapping[str, Remote],
    cancel: threading.Event,
    manner: Manner,
    tell: Tell,
) -> RunRecord:
    """Put agent, plan, key, secrets and code on every host; the record's directories become absolute."""
    package = agent.build()
    # What another machine needs to read and stop the run, if it has a way to the hosts.
    kept = {"channel.key": random_secrets.token_hex(32), onhosts.NAME: onhosts.text(record)}
    waiting = [node.alias for node in prepared.plan.nodes]

    def done(alias: str) -> None:
        waiting.remove(alias)
        tell(Event("progress", record.run_id, {"doing": "staging", "waiting": list(waiting)}))

    def one(node: NodePlan) -> Mapping[str, Any]:
        return _stage_node(node, prepared, remotes[node.alias], package, kept, manner.timeout)

    jobs = {node.alias: node for node in prepared.plan.nodes}
    tell(Event("progress", record.run_id, {"doing": "staging", "waiting": list(waiting)}))
    outcome = fan_out(jobs, one, forks=manner.forks, cancel=cancel, on_done=done)
    for alias, answer in outcome.good.items():
        tell(Event("staged", record.run_id, {"host": alias, "received_bytes": answer["received_bytes"]}))
    if outcome.bad:
        raise FleetError(outcome.bad, "staging, so nothing was started")
    nodes = tuple(
        replace(node, run_dir=outcome.good[node.host]["run_dir"], workdir=outcome.good[node.host]["workdir"])
        for node in record.nodes
    )
    return replace(record, nodes=nodes)


def _stage_node(
    node: NodePlan,
    prepared: Prepared,
    remote: Remote,
    package: bytes,
    kept: Mapping[str, str],
    timeout: float,
) -> Mapping[str, Any]:
    script = bootstrap(node.python, node.run_dir, len(package))
    stream = remote.open(script, timeout=timeout, doing="staging")
    try:
        stream.send(package)
        files = {**node.files, **kept, "secrets.json": prepared.secrets[node.alias]}
        return send(stream, node, files, prepared.manifest)
    finally:
        stream.close()


def take_back(
    record: RunRecord, remotes: Mapping[str, Remote], forks: int, tell: Tell, why: ClusterkitError
) -> None:
    """`remove` what was staged, and tell where that failed; `why` has named the unreachable hosts already."""
    named_already = why.failures if isinstance(why, FleetError) else {}
    nodes = {node.host: node for node in record.nodes}
    for host, error in remove(record, remotes, forks).items():
        if not isinstance(named_already.get(host), Unreachable):
            words = "nothing runs there, or it ends by itself within a minute"
            text = f"left behind on {host}: {nodes[host].run_dir} ({words}): {error.message}"
            tell(Event("notice", record.run_id, {"host": host, "text": text}))


def remove(record: RunRecord, remotes: Mapping[str, Remote], forks: int) -> dict[str, HostError]:
    """End what may run and take the run's directories away on every host; the hosts where that failed."""

    def one(node: NodeRecord) -> None:
        script = removal(node.python, node.run_dir, node.log_dir)
        result = remotes[node.host].run(script, timeout=CLEANUP_TIMEOUT_S, doing="removing what was staged")
        if not result.ok:
            raise CommandFailed(node.host, result.last_lines(1) or f"exit {result.status}")

    nodes = {node.host: node for node in record.nodes}
    return fan_out(nodes, one, forks=forks).bad
