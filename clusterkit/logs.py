"""Use case: any rank's log by its global number, from its host while that answers, else as it was gathered.

What is called a rank here may also be a parameter server (`runs.processes`).

Three ways to read: `refresh` brings the gathered copies up to date (only what is new travels), `tails`
fetches the last lines alone, `follow` stays with a running job.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clusterkit.interrupts import Interrupts
from clusterkit.remote.protocol import Remote
from clusterkit.runs import processes
from clusterkit.runs.follow import Following, Frame, deadline
from clusterkit.runs.gathered import GatheredLogs, LastBytes
from clusterkit.runs.record import ENDED, NodeRecord, RunRecord, RunStore
from clusterkit.runs.watch import LAUNCHER, Tell, Watch, gathered_log, log_key

# A host that says nothing for this long while its logs are read is left out, and named.
READ_LIMIT_S = 60.0
_POLL_S = 0.2


def complete(record: RunRecord, store: RunStore, rank: int, attempt: int) -> bool:
    """True if the run is over and this rank's log of its last attempt was gathered to its last byte."""
    if (
        attempt != record.attempt
        or record.state not in ENDED
        or record.node_of(rank).host in record.status.get("incomplete", ["?"])
    ):
        return False
    path = store.log(record.run_id, rank, attempt)
    return (path.stat().st_size if path.exists() else 0) == _entry(record.status, rank).get("bytes")


def refresh(
    record: RunRecord,
    ranks: Sequence[int],
    remotes: Mapping[str, Remote],
    store: RunStore,
    interrupts: Interrupts,
    tell: Tell,
    attempt: int,
    timeout: float = READ_LIMIT_S,
) -> Watch:
    """Fetch what is new of these ranks' logs into their gathered files; the Watch says what was found."""
    with GatheredLogs(lambda key: gathered_log(store, record.run_id, key)) as logs:
        names = map(processes.log_name, ranks)
        sizes = {name: logs.size(log_key(name, attempt)) for name in names}
        wanted = {name: {"offset": size, "attempt": attempt} for name, size in sizes.items()}
        watch = Watch(record, logs, tell)
        _read_once(*_wanted(record, ranks, wanted), remotes, watch, interrupts, timeout)
    return watch


def tails(
    record: RunRecord,
    ranks: Sequence[int],
    remotes: Mapping[str, Remote],
    lines: int,
    interrupts: Interrupts,
    tell: Tell,
    timeout: float = READ_LIMIT_S,
) -> Watch:
    """Tell the last lines of these ranks' logs, fetching nothing else."""
    watch = Watch(record, None, tell)
    wanted = {processes.log_name(rank): {"tail": lines} for rank in ranks}
    _read_once(*_wanted(record, ranks, wanted), remotes, watch, interrupts, timeout)
    watch.close()
    return watch


def ends(
    record: RunRecord,
    lines: Mapping[int, int],
    launchers: Mapping[str, int],
    remotes: Mapping[str, Remote],
    interrupts: Interrupts,
    most: int,
    timeout: float = READ_LIMIT_S,
) -> tuple[Watch, LastBytes]:
    """The last lines of some ranks' logs, and of the launcher's on some hosts, at most `most` bytes of each.

    They are kept in memory, by the log's key (`runs.watch.log_key`). The Watch says which hosts answered.
    """
    kept = LastBytes(most)
    watch = Watch(record, kept, lambda _: None)
    wanted: dict[str, dict[str, Mapping[str, int]]] = {}
    for rank, count in lines.items():
        name = processes.log_name(rank)
        wanted.setdefault(record.node_of(rank).host, {})[name] = {"tail": count, "attempt": record.attempt}
    for host, count in launchers.items():
        wanted.setdefault(host, {})[LAUNCHER] = {"tail": count, "attempt": record.attempt}
    nodes = [node for node in record.nodes if node.host in wanted]
    _read_once(nodes, wanted, remotes, watch, interrupts, timeout)
    return watch, kept


def follow(
    record: RunRecord,
    ranks: Sequence[int],
    remotes: Mapping[str, Remote],
    lines: int | None,
    interrupts: Interrupts,
    tell: Tell,
    tick: Callable[[], None] = lambda: None,
    since: float | None = None,
) -> Watch:
    """Tell the last `lines` lines of each rank (None: all), then every new one, until the run ends.

    With `since` and no `lines`: what may be as new as that. `tick` is called several times a second, also
    while nothing comes.
    Raises Interrupted on SIGINT; the job does not notice.
    """
    watch = Watch(record, None, tell)
    starts = {}
    for rank in ranks:
        # The hosts' clocks are not ours.
        at = None if since is None else since + record.node_of(rank).clock_offset_s
        starts[processes.log_name(rank)] = _start(lines, at)
    nodes, wanted = _wanted(record, ranks, starts)
    with Following(nodes, remotes, wanted) as following:
        while not _over(watch, nodes):
            interrupts.check()
            frame = following.next(_POLL_S)
            if frame is not None:
                watch.take(frame)
            tick()
    watch.close()
    return watch


def export(
    record: RunRecord, ranks: Sequence[int], store: RunStore, directory: Path, attempt: int
) -> dict[int, Path]:
    """Copy the gathered logs into a directory as `rank-0003.log`; the files written, by rank."""
    directory.mkdir(parents=True, exist_ok=True)
    written = {}
    for rank in ranks:
        source = store.log(record.run_id, rank, attempt)
        if source.exists():
            written[rank] = directory / source.name
            shutil.copyfile(source, written[rank])
    return written


def why_nothing(record: RunRecord, rank: int, watch: Watch | None) -> str:
    """Why there is no byte of a rank's log: never started, silent, gone from the host, or not reachable."""
    node = record.node_of(rank)
    place = f"{processes.words(rank)} on {node.host}"
    if watch is None:
        return f"{place} wrote nothing" if _started(record, rank) else f"{place} never started"
    seen = watch.observed[node.host]
    if not seen.reachable:
        return f"{place}: nothing was gathered and the host does not answer now ({seen.error})"
    entry = _entry(watch.state(node.host), rank)
    if not entry.get("started_at"):
        return f"{place} has not started yet" if record.state not in ENDED else f"{place} never started"
    if entry.get("bytes"):
        return f"{place}: its log {node.log_of(rank)} has gone from the host"
    return f"{place} has written nothing yet" if not entry.get("ended_at") else f"{place} wrote nothing"


def _start(lines: int | None, since: float | None) -> Mapping[str, float]:
    """What a host is asked for: where to begin in a log."""
    if lines is not None:
        return {"tail": lines}
    return {"offset": 0} if since is None else {"since": since}


def _started(record: RunRecord, rank: int) -> bool:
    entry = _entry(record.status, rank)
    return entry.get("exit_code") is not None or entry.get("signal") is not None


def _entry(state: Mapping[str, Any], rank: int) -> Mapping[str, Any]:
    """A process's entry in a node's state or in a status document; empty if there is none."""
    kind, number = next(iter(processes.keys(rank).items()))
    return next((each for each in state.get(f"{kind}s", []) if each[kind] == number), {})


def _wanted(
    record: RunRecord, ranks: Sequence[int], files: Mapping[str, Mapping[str, float]]
) -> tuple[list[NodeRecord], dict[str, dict[str, Mapping[str, float]]]]:
    """The nodes that have these ranks, and which files to ask of each."""
    nodes = [node for node in record.nodes if set(node.processes) & set(ranks)]
    named = {rank: processes.log_name(rank) for rank in ranks}
    return nodes, {
        node.host: {named[each]: files[named[each]] for each in node.processes if each in named}
        for node in nodes
    }


def _read_once(
    nodes: Sequence[NodeRecord],
    wanted: Mapping[str, Mapping[str, Mapping[str, float]]],
    remotes: Mapping[str, Remote],
    watch: Watch,
    interrupts: Interrupts,
    timeout: float,
) -> None:
    limit = deadline(timeout)
    with Following(nodes, remotes, wanted, wait=False, silence=timeout) as following:
        while not all(
            node.host in watch.finished or not watch.observed[node.host].reachable for node in nodes
        ):
            interrupts.check()
            frame = following.next(_POLL_S)
            if frame is not None:
                watch.take(frame)
                limit = deadline(timeout)
            if time.monotonic() > limit:
                _give_up(watch, nodes, timeout)


def _give_up(watch: Watch, nodes: Sequence[NodeRecord], timeout: float) -> None:
    """Whoever has not sent everything counts as not answering."""
    header = {"message": f"nothing came for {timeout:g} s"}
    for node in nodes:
        if node.host not in watch.finished and watch.observed[node.host].reachable:
            watch.take(Frame(node.host, "unobserved", header))


def _over(watch: Watch, nodes: Sequence[NodeRecord]) -> bool:
    """True once the followed hosts have sent their last byte, or the run is decided and they are gone."""
    done = watch.decision["phase"] == "done" or watch.record.state in ENDED
    return all(
        node.host in watch.finished or (done and not watch.observed[node.host].reachable) for node in nodes
    )
