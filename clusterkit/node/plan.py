"""`plan.json`: what one node is told about itself, the other nodes and the limits of its waits."""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .files import RunFiles, expanded


class PlanError(Exception):
    """plan.json cannot be read or says something impossible."""


class Timeouts(NamedTuple):
    """Limits in seconds: of the gate, of joining, of a node's silence, and between SIGTERM and SIGKILL.

    `hang` is that of the silence of all ranks' logs; 0 for none.
    """

    gate: float = 30.0
    join: float = 300.0
    node: float = 20.0
    grace: float = 40.0
    hang: float = 0.0


class Restarts(NamedTuple):
    """How often the job may be started again, and the back-off before it: seconds, doubled up to a limit."""

    most: int = 0
    wait: float = 5.0
    longest_wait: float = 60.0


NO_RESTARTS = Restarts()


class Member(NamedTuple):
    """One node of the run, as all nodes know it."""

    alias: str
    node_ip: str
    ranks: List[int]


class Container(NamedTuple):
    """The container in which this node's launcher runs.

    `runtime` is the command that calls Docker or Podman, `sources` the host's paths of the user's volumes,
    `unset` variables that must not reach the launcher, `home` a directory that becomes the job's home,
    `checkpoints` one that is mounted for its checkpoints alone.
    """

    runtime: List[str]
    name: str
    home: Optional[str]
    checkpoints: Optional[str]
    sources: List[str]
    unset: List[str]


class Plan(NamedTuple):
    """One node's plan. `ranks` are global ranks in the order of their local ranks; paths are absolute.

    `rank_log` is what the launcher calls a rank's log, with `{local}` in it. `meets` says that the launchers
    of all nodes meet at node 0's master port before they start ranks. `servers` are the numbers of this
    node's parameter servers, in the order in which the launcher starts them; their local ranks come last.
    """

    run_id: str
    alias: str
    node_rank: int
    node_ip: str
    ranks: List[int]
    servers: List[int]
    server_endpoints: List[str]
    world_size: int
    nodes: List[Member]
    channel_port: int
    master_port: int
    job_id: str
    port_window: Tuple[int, int]
    workdir: str
    log_dir: str
    rank_log: str
    meets: bool
    keep_environment: List[str]
    timeouts: Timeouts
    # The attempt that the supervisor begins with, and how those before it ended.
    attempt: int = 0
    restarts: Restarts = NO_RESTARTS
    history: Sequence[Dict[str, Any]] = ()
    # What becomes of a job that hangs: report, dump, stop or restart.
    on_hang: str = "report"
    container: Optional[Container] = None
    # owner ("ann@laptop"), devices (the host's numbers, None on CPUs)
    hold: Optional[Dict[str, Any]] = None

    def log(self, local_rank: int) -> str:
        """The file in which the launcher will keep this local rank's output; `*` is what only it knows."""
        if local_rank >= len(self.ranks):
            return os.path.join(self.log_dir, "serverlog.%d" % (local_rank - len(self.ranks)))
        return os.path.join(self.log_dir, self.rank_log.replace("{local}", str(local_rank)))

    @property
    def processes(self) -> int:
        """How many ranks and servers this node has."""
        return len(self.ranks) + len(self.servers)

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
        servers=[int(number) for number in raw.get("servers", [])],
        server_endpoints=list(raw.get("server_endpoints", [])),
        world_size=int(raw["world_size"]),
        nodes=nodes,
        channel_port=int(raw["channel_port"]),
        master_port=int(raw["master_port"]),
        job_id=raw["job_id"],
        port_window=(int(window[0]), int(window[1])),
        workdir=expanded(raw["workdir"]),
        log_dir=expanded(raw["log_dir"]),
        rank_log=raw.get("rank_log", "workerlog.{local}"),
        meets=bool(raw.get("meets", True)),
        keep_environment=list(raw["keep_environment"]),
        timeouts=limits,
        attempt=int(raw.get("attempt", 0)),
        restarts=Restarts(**raw.get("restarts", {})),
        history=list(raw.get("history", [])),
        on_hang=raw.get("on_hang", "report"),
        container=Container(**raw["container"]) if raw.get("container") else None,
        hold=raw.get("hold"),
    )
    if not 0 <= plan.node_rank < len(nodes):
        raise ValueError("node rank %d is not one of %d nodes" % (plan.node_rank, len(nodes)))
    return plan
