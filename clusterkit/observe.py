"""Use case: ask every host of a run how it stands, once."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from clusterkit.errors import CommandFailed, HostError
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs import progress
from clusterkit.runs.gathered import ends
from clusterkit.runs.record import NodeRecord, RunRecord, RunStore
from clusterkit.runs.status import Observed, document
from clusterkit.sync import agent_script


def observe(
    record: RunRecord,
    remotes: Mapping[str, Remote],
    *,
    forks: int,
    timeout: float,
    cancel: threading.Event | None = None,
    live: bool = False,
) -> dict[str, Any]:
    """The run's status document; a host that does not answer is `unobserved` in it, never an error here.

    With `live` also what `progress.added` adds.
    """
    more = ("--live",) if live else ()

    def one(node: NodeRecord) -> Observed:
        script = agent_script(node.python, node.run_dir, "state", *more)
        result = remotes[node.host].run(script, timeout=timeout, doing="reading the run's state")
        try:
            return Observed(json.loads(result.text.strip().splitlines()[-1]))
        except (IndexError, ValueError):
            raise CommandFailed(
                node.host,
                f"the run's directory {node.run_dir} does not answer: {result.last_lines(2) or 'no output'}",
                "it was removed, or another user started the run",
            ) from None

    outcome = fan_out({node.host: node for node in record.nodes}, one, forks=forks, cancel=cancel)
    missing = {host: Observed(None, _why(error)) for host, error in outcome.bad.items()}
    status = document(record, {**outcome.good, **missing})
    if not live:
        return status
    return progress.added(status, {host: seen.state or {} for host, seen in outcome.good.items()})


def recorded(record: RunRecord, store: RunStore) -> dict[str, Any]:
    """The status document of a run that is over, without asking any host: what `status --json` prints."""
    paths = {rank: store.log(record.run_id, rank) for node in record.nodes for rank in node.ranks}
    return progress.of_gathered(record.status, ends(paths))


def _why(error: HostError) -> str:
    return error.message
