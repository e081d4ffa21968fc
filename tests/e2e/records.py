"""What the supervisors left on the hosts' disks, read without clusterkit: the times of a run's end."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.e2e.cluster import Cluster


def newest_run(cluster: Cluster) -> str:
    """The id of the run that was started last from here (ids sort by time)."""
    runs = sorted(path.name for path in (cluster.state / "clusterkit" / "runs").iterdir() if path.is_dir())
    assert runs, "no run was recorded"
    return runs[-1]


def node_state(cluster: Cluster, host: str) -> dict[str, Any]:
    """The last state that the host's supervisor wrote."""
    path = f"/root/.clusterkit/{host}/runs/{newest_run(cluster)}/state.json"
    state: dict[str, Any] = json.loads(cluster.sandbox.read(host, path))
    return state


def rank_ended_at(cluster: Cluster, host: str, local_rank: int) -> float:
    """When a rank's script ended (all hosts share this machine's clock)."""
    path = f"/root/.clusterkit/{host}/runs/{newest_run(cluster)}/ranks/{local_rank}.json"
    return float(json.loads(cluster.sandbox.read(host, path))["ended_at"])


def wait_until_ended(cluster: Cluster, hosts: tuple[str, ...], limit: float = 60.0) -> dict[str, float]:
    """When each of these hosts had ended its part of the newest run, as its supervisor wrote it."""
    end = time.monotonic() + limit
    while True:
        states = {host: node_state(cluster, host) for host in hosts}
        if all(state["state"] == "ended" for state in states.values()):
            return {host: float(state["ended_at"]) for host, state in states.items()}
        assert time.monotonic() < end, f"not ended after {limit} s: {states}"
        time.sleep(0.2)


def running_there(cluster: Cluster, host: str) -> list[str]:
    """The command lines on one host that belong to a run (its marker, or the agent's file)."""
    return [" ".join(argv) for where, argv in cluster.marked() if where == host]


def all_gone_on(cluster: Cluster, host: str, limit: float = 10.0) -> bool:
    """True once nothing of a run is left on this host, whatever the others do."""
    end = time.monotonic() + limit
    while running_there(cluster, host):
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True
