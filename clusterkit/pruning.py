"""Use case: remove what ended runs left on their hosts, and never anything of a run that is alive."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterkit.errors import CommandFailed, HostError
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.sync import shell_path

# Big logs on a slow disk; `rm` of one run is not more than a few thousand files.
REMOVE_LIMIT_S = 300.0

# A run is alive on a host while a supervisor holds the socket with its name, or a process carries its mark.
_REMOVE = r"""
prune() {
    if grep -qs "@clusterkit/$1/" /proc/net/unix ||
        grep -aqs "CLUSTERKIT_RUN_ID=$1" /proc/[0-9]*/environ; then
        echo "$1 alive"
        return
    fi
    run=$1
    shift
    if said=$(rm -rf -- "$@" 2>&1)
    then echo "$run gone"
    else echo "$run failed $(echo "$said" | head -1)"
    fi
}
"""


@dataclass(frozen=True)
class Pruned:
    """What became of one run: the hosts from which it is gone, and why it is not gone from others."""

    record: RunRecord
    gone: tuple[str, ...]
    failures: Mapping[str, HostError]

    @property
    def complete(self) -> bool:
        """True if nothing of it is left on any host."""
        return not self.failures


def directories(node: NodeRecord, run_id: str) -> list[str]:
    """What a run has of its own on a host: its directory, and that of its logs where these lie elsewhere.

    Empty if the record does not name them as we do: what has another name is not ours to remove.
    """
    run_dir, beside = node.run_dir.rstrip("/"), node.log_dir.rstrip("/").rpartition("/")[0]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", run_id) or not run_dir.endswith(f"/runs/{run_id}"):
        return []
    return [run_dir] if beside == run_dir or not beside.endswith(f"/{run_id}") else [run_dir, beside]


def remove(
    records: Sequence[RunRecord],
    remotes: Mapping[str, Remote],
    *,
    forks: int,
    cancel: threading.Event | None = None,
) -> list[Pruned]:
    """The runs' directories are gone from every host that answers and on which they are not alive."""
    work: dict[str, list[tuple[str, list[str]]]] = {}
    for record in records:
        for node in record.nodes:
            work.setdefault(node.host, []).append((record.run_id, directories(node, record.run_id)))

    def one(item: tuple[str, list[tuple[str, list[str]]]]) -> dict[str, str]:
        host, runs = item
        calls = [" ".join(["prune", run, *map(shell_path, paths)]) for run, paths in runs if paths]
        script = _REMOVE + "\n".join(calls) + "\nexit 0\n"
        answer = remotes[host].run(script, timeout=REMOVE_LIMIT_S, doing="removing old runs")
        return dict(line.split(" ", 1) for line in answer.text.splitlines() if " " in line)

    outcome = fan_out({host: (host, runs) for host, runs in work.items()}, one, forks=forks, cancel=cancel)
    return [_pruned(record, outcome.good, outcome.bad) for record in records]


def _pruned(
    record: RunRecord, answers: Mapping[str, Mapping[str, str]], silent: Mapping[str, HostError]
) -> Pruned:
    failures = {}
    for node in record.nodes:
        said = answers.get(node.host, {}).get(record.run_id, "")
        if node.host in silent:
            failures[node.host] = silent[node.host]
        elif said != "gone":
            failures[node.host] = _why(node, record.run_id, said)
    return Pruned(record, tuple(n.host for n in record.nodes if n.host not in failures), failures)


def _why(node: NodeRecord, run_id: str, said: str) -> HostError:
    if said == "alive":
        return CommandFailed(
            node.host, f"run {run_id} has processes there", f"clusterkit stop {run_id} ends them"
        )
    if not directories(node, run_id):
        return CommandFailed(node.host, f"{shlex.quote(node.run_dir)} is not named as a run's directory is")
    return CommandFailed(node.host, said.removeprefix("failed ") or "it did not say what it removed")
