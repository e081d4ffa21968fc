"""`plan.json`: what one node is told about itself, the other nodes and the limits of its waits."""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .files import RunFiles, expanded


class PlanError(Exception):
    """plan.json cannot be read or says something impossible."""


class Timeouts(NamedTuple):
    """Limits in seconds: of the gate, of joining, of a node's silence, and between SIGTERM and SIGKILL."""

    gate: float = 30.0
    join: float = 300.0
    node: float = 20.0
    grace: float = 40.0


class Member(NamedTuple):
    """One node of the run, as all nodes know it."""

    alias: str
    node_ip: str
    ranks: List[int]


class Plan(NamedTuple):
    """One node's plan. `ranks` are global ranks in the order of their local ranks; paths are absolute."""

    run_id: str
    alias: str
    node_rank: int
    node_ip: str
    ranks: List[int]
    world_size: int
    nodes: List[Member]
    channel_port: int
    master_port: int
    job_id: str
    port_window: Tuple[int, int]
    workdir: str
    log_dir: str
    keep_environment: List[str]
    timeouts: Timeouts
    # owner ("ann@laptop"), devices (the host's numbers, None on CPUs)
    hold: Optional[Dict[str, Any]] = None

    def log(self, local_rank: int) -> str:
        """The file in which Paddle's launcher keeps this local rank's output."""
        return os.path.join(self.log_dir, "workerlog.%d" % local_rank)

    @property
    def launcher_log(self) -> str:
        """The file that holds what the launcher itself says."""
        return os.path.join(self.log_dir, "launcher.log")


def open_run(run_dir: str) -> Tuple[RunFiles, Plan]:
    """A run's files and plan. Raises PlanError with one line that names the file."""
    path = RunFiles(run_dir).plan
    try:
        with open(path, encoding="utf-8") as file:
            plan = parse(json.load(file))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError("%s: %s" % (path, _words(error)))
    return RunFiles(run_dir, plan.log_dir), plan


def _words(error: Exception) -> str:
    if isinstance(error, KeyError):
        return "%s is missing" % error
    if isinstance(error, OSError):
        return str(error.strerror)
    return str(error)


def parse(raw: Dict[str, Any]) -> Plan:
    """A plan from the JSON document. Raises KeyError, TypeError or ValueError."""
    limits = Timeouts(**{name: float(value) for name, value in raw.get("timeouts", {}).items()})
    window = raw.get("port_window") or [raw["channel_port"], raw["channel_port"]]
    nodes = [
        Member(node["alias"], node["node_ip"], [int(rank) for rank in node["ranks"]]) for node in raw["nodes"]
    ]
    plan = Plan(
        run_id=raw["run_id"],
        alias=raw["alias"],
        node_rank=int(raw["node_rank"]),
        node_ip=raw["node_ip"],
        ranks=[int(rank) for rank in raw["ranks"]],
        world_size=int(raw["world_size"]),
        nodes=nodes,
        channel_port=int(raw["channel_port"]),
        master_port=int(raw["master_port"]),
        job_id=raw["job_id"],
        port_window=(int(window[0]), int(window[1])),
        workdir=expanded(raw["workdir"]),
        log_dir=expanded(raw["log_dir"]),
        keep_environment=list(raw["keep_environment"]),
        timeouts=limits,
        hold=raw.get("hold"),
    )
    if not 0 <= plan.node_rank < len(nodes):
        raise ValueError("node rank %d is not one of %d nodes" % (plan.node_rank, len(nodes)))
    return plan
