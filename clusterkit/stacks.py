"""Use case: what every rank of a running job is doing at this moment, all asked at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusterkit.errors import CommandFailed, HostError
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs import frames, processes
from clusterkit.runs.frames import Group, Thread
from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.sync import agent_script


@dataclass(frozen=True)
class Stacks:
    """The threads of each process that has told them, why others have none, and hosts that gave no answer.

    Processes are numbered as `runs.processes` does; one that does not run is in neither.
    """

    run_id: str
    told: Mapping[int, Sequence[Thread]]
    silent: Mapping[int, str]
    failures: Mapping[str, HostError] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Those that stand at the same place together, the largest group first."""
        return frames.grouped(self.told)


def take(
    record: RunRecord,
    chosen: Sequence[int],
    remotes: Mapping[str, Remote],
    *,
    forks: int,
    timeout: float,
    cancel: threading.Event | None = None,
    on_done: Callable[[str], None] | None = None,
) -> Stacks:
    """The stacks of the chosen processes. The job does not notice: it goes on where it was."""

    def one(node: NodeRecord) -> Mapping[str, Any]:
        script = agent_script(node.python, node.run_dir, "stacks")
        result = remotes[node.host].run(script, timeout=timeout, doing="taking the stacks")
        return _read(node, result.text, result.last_lines(2))

    nodes = {node.host: node for node in record.nodes if set(node.processes) & set(chosen)}
    outcome = fan_out(nodes, one, forks=forks, cancel=cancel, on_done=on_done)
    told: dict[int, Sequence[Thread]] = {}
    silent: dict[int, str] = {}
    for host, answer in outcome.good.items():
        for each in answer["processes"]:
            number = each["rank"] if "rank" in each else processes.server(each["server"])
            if number not in chosen:
                continue
            found = frames.threads(each["text"], nodes[host].workdir)
            if found:
                told[number] = found
            else:
                silent[number] = each["problem"] or "it has told nothing that can be read as a stack"
    return Stacks(record.run_id, told, silent, outcome.bad)


def _read(node: NodeRecord, text: str, last_lines: str) -> Mapping[str, Any]:
    try:
        answer: Mapping[str, Any] = json.loads(text.strip().splitlines()[-1])
        if "error" in answer:
            raise CommandFailed(node.host, str(answer["error"]))
        for each in answer["processes"]:
            each["text"], each["problem"]
    except (IndexError, ValueError, KeyError, TypeError):
        raise CommandFailed(
            node.host,
            f"the run's agent in {node.run_dir} did not tell any stacks: {last_lines or 'no output'}",
            "a run of an older clusterkit cannot; `py-spy dump --pid PID` on the host shows one process",
        ) from None
    return answer
