"""Topology, environment and dialect become the exact command and files of each node. Pure."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from clusterkit.errors import InputError
from clusterkit.inventory.model import Settings
from clusterkit.planning import containers, dialects, places, planned
from clusterkit.planning.attempts import Attempts
from clusterkit.planning.containers import Container, Directories, Ground
from clusterkit.planning.dialects import Call, Dialect
from clusterkit.planning.environment import Environment
from clusterkit.planning.places import Home
from clusterkit.planning.templating import render
from clusterkit.planning.topology import Node, Topology

TEMPLATE = "paddle-launch.sh.j2"
CONTAINER_TEMPLATE = "container-run.sh.j2"


@dataclass(frozen=True)
class Timeouts:
    """Limits that the supervisors keep, in seconds; the meaning of each is in docs/architecture.md."""

    gate: float = 30
    join: float = 300
    node: float = 20
    grace: float = 40
    hang: float = 0


@dataclass(frozen=True)
class Request:
    """What to run: `script` as seen from the working directory (or absolute), and its arguments.

    `code` is the name under which the code is synced, None where it is on a shared mount already
    (`--no-sync`); `root` is the sync root here. `template` is a file or folder that overrides ours.
    `owner` (`ann@laptop`) is told to other users of the hosts.
    """

    script: str
    arguments: tuple[str, ...]
    root: Path
    code: str | None
    timeouts: Timeouts = field(default_factory=Timeouts)
    template: Path | None = None
    attempts: Attempts = field(default_factory=Attempts)
    owner: str = ""


@dataclass(frozen=True)
class NodePlan:
    """Everything that one node gets. `files` (name → text) holds no secret; the run's key and `secrets.json`
    are added when it is launched. With a `container`, `command` is what runs inside."""

    node: Node
    run_dir: str
    workdir: str
    log_dir: str
    paddle_version: str
    dialect: Dialect
    environment: Environment
    command: tuple[str, ...]
    job_id: str
    files: Mapping[str, str] = field(repr=False)
    container: Container | None = None

    @property
    def alias(self) -> str:
        """The host's name in the inventory."""
        return self.node.alias

    @property
    def node_rank(self) -> int:
        """The node's number in the run: Paddle's `--rank`."""
        return self.node.node_rank

    @property
    def node_ip(self) -> str:
        """The address that the other nodes use."""
        return self.node.node_ip

    @property
    def ranks(self) -> tuple[int, ...]:
        """Its global ranks, in the order of their local ranks."""
        return self.node.ranks

    @property
    def rank_log(self) -> str:
        """A rank's log in `log_dir`, with `{local}` in its name; `*` is what only the launcher knows."""
        return self.dialect.worker_log.replace("{job}", self.job_id)

    @property
    def servers(self) -> tuple[int, ...]:
        """The numbers of its parameter servers."""
        return self.node.servers

    @property
    def python(self) -> str:
        """The host's interpreter: the agent's, and on a bare host the launcher's and the ranks' too."""
        return self.node.python

    @property
    def command_text(self) -> str:
        """The launcher's command as a shell takes it, working directory included.

        Where only a template knows it, the script that the template made.
        """
        if not self.command:
            return f"exec sh {shlex.quote(posixpath.join(self.run_dir, 'node.sh'))}"
        return f"cd {shlex.quote(self.workdir)} && exec {shlex.join(self.command)}"


@dataclass(frozen=True)
class Plan:
    """A whole run, before anything of it exists; `nodes` in node-rank order."""

    run_id: str
    topology: Topology
    request: Request
    nodes: tuple[NodePlan, ...]
    warnings: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        """The training script, as seen from the working directory."""
        return self.request.script

    @property
    def args(self) -> tuple[str, ...]:
        """The script's own arguments."""
        return self.request.arguments

    @property
    def master(self) -> str:
        """Where the launchers meet, `IP:PORT`; before 2.3 they do not, and it is where rank 0 listens."""
        meets = self.nodes[0].dialect.meets and not self.topology.server_endpoints
        port = self.topology.master_port if meets else first_port(self.topology)
        return f"{self.nodes[0].node_ip}:{port}"

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL when the job is ended."""
        return self.request.timeouts.grace

    def as_text(self, show_env: bool = False) -> str:
        """The plan for a person; see `planned`."""
        return planned.as_text(self, show_env)

    def as_json(self, show_env: bool = False) -> dict[str, Any]:
        """The plan for a program; see `planned`."""
        return planned.as_json(self, show_env)

    def write(self, directory: Path) -> list[Path]:
        """Each node's files are in `directory`; see `planned`."""
        return planned.write(self, directory)


def make(
    run_id: str,
    topology: Topology,
    members: Sequence[Settings],
    environments: Mapping[str, Environment],
    paddle_versions: Mapping[str, str],
    homes: Mapping[str, Home],
    request: Request,
    grounds: Mapping[str, Ground] | None = None,
) -> Plan:
    """The plan of a run; every mapping has each node's alias as a key, `grounds` those with a container.

    Raises InputError for a Paddle that cannot be launched and for a path or an argument that cannot be used,
    TemplateError for a template that does not render.
    """
    _check_arguments(request)
    settings = {member.alias: member for member in members}
    own_launcher = request.template is not None and request.template.is_file()
    spoken = _dialects(topology, paddle_versions, own_launcher)
    nodes = tuple(
        _node_plan(
            run_id,
            topology,
            node,
            settings[node.alias],
            environments[node.alias],
            paddle_versions[node.alias],
            spoken[node.alias],
            homes[node.alias],
            request,
            (grounds or {}).get(node.alias),
        )
        for node in topology.nodes
    )
    return Plan(run_id, topology, request, nodes, tuple(_warnings(request, nodes)))


def first_port(topology: Topology) -> int:
    """The port of every node's local rank 0 where the launcher is told one: the same on all nodes."""
    return topology.launcher_ports[0].first


def _dialects(topology: Topology, versions: Mapping[str, str], own_launcher: bool) -> dict[str, Dialect]:
    """Each node's dialect. Raises InputError where the launchers would not understand each other.

    A template of one's own may start something else, on hosts without PaddlePaddle.
    """
    found = {
        node.alias: dialects.foreign()
        if own_launcher and not versions[node.alias]
        else dialects.for_version(versions[node.alias], node.alias)
        for node in topology.nodes
    }
    first = topology.nodes[0].alias
    for alias, dialect in found.items():
        if dialect.options is not found[first].options:
            raise InputError(
                f"host {alias}: PaddlePaddle {versions[alias]} there and {versions[first]} on {first} cannot "
                "train together: their launchers take different options",
                "install one version of PaddlePaddle everywhere",
            )
    return found


def _node_plan(
    run_id: str,
    topology: Topology,
    node: Node,
    settings: Settings,
    environment: Environment,
    version: str,
    dialect: Dialect,
    home: Home,
    request: Request,
    ground: Ground | None,
) -> NodePlan:
    remote_dir = settings.remote_dir
    run = places.run_dir(remote_dir, node.alias, run_id, home.path)
    logs = places.log_dir(run, node.alias, run_id, home)
    workdir = places.workdir(remote_dir, node.alias, request.code, request.root.as_posix(), home.path)
    seat = containers.seat(node, ground) if ground else node
    call = _call(run_id, topology, seat, logs)
    words = (_script(request.script), *request.arguments)
    dialect.refuse(version, call, tuple(each.alias for each in topology.nodes), words)
    command = (*_launcher(seat, dialect, call), *_entry(seat, dialect, run), *words) if version else ()
    environment = replace(
        environment,
        set=MappingProxyType(dict(sorted({**environment.set, **dialect.variables(call)}.items()))),
    )
    values = _values(run_id, topology, seat, (run, workdir, logs), environment, words, command)
    where = Directories(
        run=run,
        records=posixpath.dirname(logs),
        work=workdir,
        home=places.home_dir(remote_dir, node.alias, home.path),
        checkpoints=environment.set.get("CLUSTERKIT_CHECKPOINT_DIR", workdir),
    )
    grace = request.timeouts.grace
    container = containers.make(settings, node, ground, run_id, where, grace) if ground else None
    keep = containers.client_environment() if container else environment.keep
    description = {
        **_description(run_id, topology, node, workdir, logs, dialect, keep, request.timeouts),
        **request.attempts.as_json(),
        "hold": {"owner": request.owner, "devices": None if node.devices is None else list(node.devices)},
        **({"container": container.description()} if container else {}),
    }
    files = {
        **(_container_files(container, values, request) if container else {}),
        "plan.json": json.dumps(description, indent=1, ensure_ascii=False) + "\n",
        "node.sh": render(TEMPLATE, values, request.template),
    }
    return NodePlan(
        node=node,
        run_dir=run,
        workdir=workdir,
        log_dir=logs,
        paddle_version=version,
        dialect=dialect,
        environment=environment,
        command=command,
        job_id=run_id,
        files=MappingProxyType(files),
        container=container,
    )


def _values(
    run_id: str,
    topology: Topology,
    seat: Node,
    directories: tuple[str, str, str],
    environment: Environment,
    words: tuple[str, ...],
    command: tuple[str, ...],
) -> dict[str, object]:
    """What a template of node.sh may use (docs/launchers.md); `seat` is the node as its launcher sees it.

    `directories` are those of the run, of the work and of the logs.
    """
    run, workdir, logs = directories
    return {
        "run_id": run_id,
        "alias": seat.alias,
        "workdir": workdir,
        "log_dir": logs,
        "environment": list(environment.set.items()),
        "node_rank": seat.node_rank,
        "node_count": len(topology.nodes),
        "node_ip": seat.node_ip,
        "ranks": seat.ranks,
        "processes": len(seat.ranks),
        "world_size": topology.world_size,
        "devices": seat.devices,
        "python": seat.python,
        "master_ip": topology.nodes[0].node_ip,
        "master_port": topology.master_port,
        "entry": (seat.python, "-u", posixpath.join(run, "agent.pyz"), "rank", run),
        "script": words,
        # What follows from PaddlePaddle is there where PaddlePaddle is.
        **({"command": command} if command else {}),
    }


def _container_files(container: Container, values: Mapping[str, object], request: Request) -> dict[str, str]:
    """What stands beside node.sh: the script that starts the container, and what that mounts.

    A template that is one file is node.sh's; a folder may have one of each.
    """
    folders = [folder for folder in (container.home, container.checkpoints) if folder]
    override = request.template if request.template is not None and request.template.is_dir() else None
    given = {**values, "command": container.command, "folders": folders}
    return {**container.files, containers.SCRIPT: render(CONTAINER_TEMPLATE, given, override)}


def _call(run_id: str, topology: Topology, node: Node, logs: str) -> Call:
    return Call(
        master=f"{topology.nodes[0].node_ip}:{topology.master_port}",
        node_rank=node.node_rank,
        node_ip=node.node_ip,
        node_ips=tuple(each.node_ip for each in topology.nodes),
        rank_counts=tuple(len(each.ranks) for each in topology.nodes),
        first_port=first_port(topology),
        devices=node.devices,
        processes=len(node.ranks),
        job_id=run_id,
        log_dir=logs,
        servers=topology.server_endpoints,
        trainers=topology.trainer_endpoints if topology.server_endpoints else (),
        gloo_port=topology.launcher_ports[0].last,
    )


def _launcher(node: Node, dialect: Dialect, call: Call) -> tuple[str, ...]:
    say = dialect.server_options if call.servers and dialect.server_options else dialect.options
    return (node.python, "-u", "-m", "paddle.distributed.launch", *say(call))


def _entry(node: Node, dialect: Dialect, run: str) -> tuple[str, ...]:
    """What stands where the launcher expects the training script; the user's script is its argument.

    A launcher that starts programs gets the Python executable, whose name does not end in `.py`; for the
    others the agent itself is what Python runs.
    """
    entry = (posixpath.join(run, "agent.pyz"), "rank", run)
    if not dialect.runs_programs:
        return entry
    if node.python.endswith((".py", ".pyxes")):
        raise InputError(
            f"host {node.alias}: python={node.python} ends like a script; Paddle would not run it as it is",
            "point `python` at the interpreter itself, for example through a link with another name",
        )
    return (node.python, "-u", *entry)


def _script(script: str) -> str:
    """A name with a dash at its start would be an option; a program's bare name is looked for in PATH."""
    bare = "/" not in script and not script.endswith(".py")
    return f"./{script}" if bare or script.startswith("-") else script


def _description(
    run_id: str,
    topology: Topology,
    node: Node,
    workdir: str,
    logs: str,
    dialect: Dialect,
    keep: Sequence[str],
    timeouts: Timeouts,
) -> dict[str, object]:
    """plan.json, schema 1 (docs/architecture.md)."""
    return {
        "schema": 1,
        "run_id": run_id,
        "alias": node.alias,
        "node_rank": node.node_rank,
        "node_ip": node.node_ip,
        "ranks": list(node.ranks),
        "servers": list(node.servers),
        "server_endpoints": list(topology.server_endpoints),
        "world_size": topology.world_size,
        "nodes": [
            {"alias": other.alias, "node_ip": other.node_ip, "ranks": list(other.ranks)}
            for other in topology.nodes
        ],
        "channel_port": topology.channel_port,
        "master_port": topology.master_port,
        "port_window": [topology.port_window.first, topology.port_window.last],
        "job_id": run_id,
        "meets": dialect.meets and not topology.server_endpoints,
        "rank_log": dialect.worker_log.replace("{job}", run_id),
        "workdir": workdir,
        "log_dir": logs,
        "keep_environment": list(keep),
        "timeouts": {
            "gate": timeouts.gate,
            "join": timeouts.join,
            "node": timeouts.node,
            "grace": timeouts.grace,
            "hang": timeouts.hang,
        },
    }


def _check_arguments(request: Request) -> None:
    """What no command line can carry is refused before anything starts."""
    for text in (request.script, *request.arguments):
        if "\0" in text:
            raise InputError(f"argument {text!r} holds a NUL byte, which no command line can carry")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError(
                f"argument {text!r} is not UTF-8 text", "write it in UTF-8, or pass it in a file"
            ) from None
    if not request.script or PurePosixPath(request.script).name in ("", ".", ".."):
        raise InputError(
            f"{request.script!r} is not a script", "name the training script, for example train.py"
        )


def _warnings(request: Request, nodes: Sequence[NodePlan]) -> list[str]:
    own = []
    if request.template is not None:
        own = [f"node.sh is made by the template {request.template}; --dry-run --output DIR writes it"]
    return own + _mixed_versions(nodes)


def _mixed_versions(nodes: Sequence[NodePlan]) -> list[str]:
    versions: dict[str, list[str]] = {}
    for each in nodes:
        versions.setdefault(each.paddle_version, []).append(each.alias)
    if len(versions) < 2:
        return []
    found = "; ".join(f"{version} on {', '.join(aliases)}" for version, aliases in versions.items())
    return [f"PaddlePaddle is not the same on all hosts ({found}): install one version everywhere"]
