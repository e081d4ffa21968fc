"""Use case: why a run failed, out of its record, its logs, and what its hosts' kernels say of that time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from clusterkit import logs
from clusterkit.diagnosis.followers import failed_processes
from clusterkit.diagnosis.remains import Remains, failed_at, first_failed
from clusterkit.diagnosis.rules import Rule
from clusterkit.diagnosis.verdict import diagnosis
from clusterkit.errors import named
from clusterkit.facts import gather
from clusterkit.interrupts import Interrupts
from clusterkit.inventory.model import Settings
from clusterkit.probes.gpu_processes import GPU_PROCESSES, GpuProcess
from clusterkit.probes.kernel_log import KernelLine, kernel_log
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs import processes
from clusterkit.runs.gathered import LastBytes, ends
from clusterkit.runs.record import NodeRecord, RunRecord, RunStore
from clusterkit.runs.watch import LAUNCHER, log_key
from clusterkit.tables import Tables

# Of the rank that failed first so much is read from the end of its log, of the others less.
ROOT_BYTES = 1 << 20
OTHER_BYTES = 1 << 14
# A launch that has just failed looks at less, since somebody waits for its end.
SHORT_BYTES = 1 << 18
# The same in lines, where a host is asked for it.
ROOT_LINES = 2000
OTHER_LINES = 200
# The kernel log is read from so long before the failure to so long after it.
# A node that fell silent is noticed late.
BEFORE_S = 60.0
BEFORE_LOST_S = 180.0
AFTER_S = 30.0


T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What one host said; `kernel` is None, and `problem` says why, where its kernel log may not be read."""

    kernel: tuple[KernelLine, ...] | None
    gpus: tuple[GpuProcess, ...]
    problem: str


def from_here(record: RunRecord, store: RunStore) -> Remains:
    """What is recorded and gathered on this machine; no host is asked."""
    status = record.status
    root = first_failed(status)
    paths = {each: store.log(record.run_id, each, record.attempt) for each in failed_processes(status)}
    tails = ends(paths, OTHER_BYTES)
    if root is not None:
        tails.update(ends({root: store.log(record.run_id, root, record.attempt)}, ROOT_BYTES))
    launchers = {} if root is not None else _launchers_here(record, store)
    return Remains(status, tails, launchers)


def with_hosts(
    record: RunRecord,
    remains: Remains,
    settings: Mapping[str, Settings],
    remotes: Mapping[str, Remote],
    interrupts: Interrupts,
    *,
    forks: int,
    timeout: float,
) -> Remains:
    """The same with what only the hosts have: logs that were not gathered, kernel logs, processes on GPUs.

    A host that does not answer is in `away`. Raises Interrupted.
    """
    missing = [each for each in _wanted(record) if each not in remains.logs]
    read = _read_logs(record, remains, missing, remotes, interrupts, timeout)
    return _ask(record, read, settings, remotes, interrupts.cancel, forks, timeout)


def in_short(
    record: RunRecord, store: RunStore, rules: Sequence[Rule], tables: Tables
) -> dict[str, Any] | None:
    """The cause that is plain from what is here alone, with `meaning` and `cure`; None if none is."""
    root = first_failed(record.status)
    paths = {} if root is None else {root: store.log(record.run_id, root, record.attempt)}
    launchers = {} if root is not None else _launchers_here(record, store)
    remains = Remains(record.status, ends(paths, SHORT_BYTES), launchers)
    document = diagnosis(record, remains, rules, tables)
    first = next(iter(document["known"]), None)
    return None if first is None or first["symptom"] else first


def _wanted(record: RunRecord) -> list[int]:
    """The ranks and servers whose logs are read: the first, and all others that failed."""
    root = first_failed(record.status)
    return list(dict.fromkeys([*([root] if root is not None else []), *failed_processes(record.status)]))


def _launchers_here(record: RunRecord, store: RunStore) -> dict[str, str]:
    paths = {
        number: store.launcher_log(record.run_id, node.host, record.attempt)
        for number, node in enumerate(record.nodes)
    }
    return {record.nodes[number].host: said for number, said in ends(paths, OTHER_BYTES).items()}


def _read_logs(
    record: RunRecord,
    remains: Remains,
    missing: Sequence[int],
    remotes: Mapping[str, Remote],
    interrupts: Interrupts,
    timeout: float,
) -> Remains:
    """Add the ends of the logs that are not here. One that a host has no more is in `unread`."""
    root = first_failed(record.status)
    lines = {each: ROOT_LINES if each == root else OTHER_LINES for each in missing}
    launchers = {}
    if root is None:
        # What never started was taken back: there is nothing of it on the hosts.
        started = [node["host"] for node in record.status.get("nodes", []) if node.get("started_at")]
        launchers = {host: OTHER_LINES for host in started if host not in remains.launchers}
    if not lines and not launchers:
        return remains
    watch, kept = logs.ends(record, lines, launchers, remotes, interrupts, ROOT_BYTES, timeout)
    found = _kept(kept, {each: processes.log_name(each) for each in lines}, record.attempt)
    said = _kept(kept, {host: f"{LAUNCHER}-{host}" for host in launchers}, record.attempt)
    errors = {host: seen.error for host, seen in watch.observed.items() if not seen.reachable}
    # Who has finished has answered, if only that it does not know the run any more.
    away = {host: error for host, error in errors.items() if host not in watch.finished}
    gone = {each: record.node_of(each).host for each in missing if each not in found}
    unread = [
        f"the log of {processes.words(each)}: {named(host, errors.get(host) or 'it is not there any more')}"
        for each, host in gone.items()
        if host not in away
    ]
    return replace(
        remains,
        logs={**remains.logs, **found},
        launchers={**remains.launchers, **said},
        away=away,
        unread=(*remains.unread, *unread),
    )


def _kept(kept: LastBytes, names: Mapping[T, str], attempt: int) -> dict[T, str]:
    texts = {key: kept.text(log_key(name, attempt)) for key, name in names.items()}
    return {key: text for key, text in texts.items() if text is not None}


def _ask(
    record: RunRecord,
    remains: Remains,
    settings: Mapping[str, Settings],
    remotes: Mapping[str, Remote],
    cancel: threading.Event,
    forks: int,
    timeout: float,
) -> Remains:
    """Add each host's kernel log of that time, and what computes on its GPUs now."""
    at = failed_at(record.status)
    if at is None:
        return remains
    before = BEFORE_S if first_failed(record.status) is not None else BEFORE_LOST_S

    def one(node: NodeRecord) -> Answer:
        there = at + node.clock_offset_s
        kernel = kernel_log(there - before, there + AFTER_S)
        facts = gather(remotes[node.host], settings[node.host], (kernel, GPU_PROCESSES), timeout=timeout)
        failure = facts.failure(kernel)
        return Answer(facts.get(kernel), facts.get(GPU_PROCESSES) or (), failure.message if failure else "")

    outcome = fan_out({node.host: node for node in record.nodes}, one, forks=forks, cancel=cancel)
    unread = [named(host, answer.problem) for host, answer in outcome.good.items() if answer.problem]
    # Where the host answers this, it is the run's directory that does not.
    gone = [host for host in remains.away if host in outcome.good]
    unread += [f"{host}: the run's files are not there any more" for host in gone]
    return replace(
        remains,
        kernel={host: answer.kernel for host, answer in outcome.good.items() if answer.kernel is not None},
        gpus={host: answer.gpus for host, answer in outcome.good.items()},
        away={host: error.message for host, error in outcome.bad.items()},
        unread=(*remains.unread, *unread),
    )
