"""Use case: end a run on all its hosts, and prove that nothing of it is left."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusterkit.errors import CommandFailed, HostError
from clusterkit.observe import observe
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs.record import ENDED, NodeRecord, RunRecord, RunStore
from clusterkit.sync import agent_script

# What is left to say of a run of which no node had a last word, and of which nothing is left.
_STOPPED = {
    "state": "stopped",
    "exit_code": 143,
    "cause": "user",
    "reason": "stopped by `clusterkit stop`",
}
# Beyond the grace: SIGKILL, the last look at /proc, and the answer's way back.
MARGIN_S = 30.0


@dataclass(frozen=True)
class Stopped:
    """What `stop` did on one host: process ids that had to be killed, and those that are still there."""

    was: str
    killed: tuple[int, ...]
    left: tuple[int, ...]


@dataclass(frozen=True)
class StopResult:
    """`stop` on all hosts; `clean` is True if every host answered and nothing is left anywhere."""

    run_id: str
    hosts: Mapping[str, Stopped]
    failures: Mapping[str, HostError]
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """True if nothing of the run is left on any host."""
        return not self.failures and not any(stopped.left for stopped in self.hosts.values())


def stop(
    record: RunRecord,
    remotes: Mapping[str, Remote],
    store: RunStore,
    *,
    grace: float,
    forks: int,
    timeout: float = MARGIN_S,
    cancel: threading.Event | None = None,
    on_done: Callable[[str], None] | None = None,
) -> StopResult:
    """End the run everywhere: SIGTERM, after `grace` seconds SIGKILL, then look for what is left.

    A host has the grace and `timeout` seconds to say how it went, and `timeout` again for the run's state.
    """

    def one(node: NodeRecord) -> Stopped:
        script = agent_script(node.python, node.run_dir, "stop", "--grace", f"{grace:g}")
        result = remotes[node.host].run(script, timeout=grace + timeout, doing="stopping the run")
        return _read(node, result.status, result.text, result.last_lines(3))

    outcome = fan_out(
        {node.host: node for node in record.nodes}, one, forks=forks, cancel=cancel, on_done=on_done
    )
    status = observe(record, remotes, forks=forks, timeout=timeout, cancel=cancel)
    result = StopResult(record.run_id, outcome.good, outcome.bad, status)
    # Where a host does not answer the job may go on: that it was told to stop is no proof.
    if result.clean and status["state"] not in ENDED:
        result = replace(result, status={**status, **_STOPPED})
    store.save(replace(record, status=result.status))
    return result


def _read(node: NodeRecord, status: int, text: str, last_lines: str) -> Stopped:
    try:
        answer = json.loads(text.strip().splitlines()[-1])
        return Stopped(str(answer["was"]), tuple(answer["killed"]), tuple(answer["left"]))
    except (IndexError, ValueError, KeyError):
        raise CommandFailed(
            node.host,
            f"the run's agent did not say what it stopped (exit {status}): {last_lines or 'no output'}",
            f"look at {node.run_dir} on {node.host}; processes of this run have its id in their environment",
        ) from None
