"""Topology, environment and dialect become the exact command and files of each node. Pure."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from clusterkit.errors import InputError
from clusterkit.inventory.model import Settings
from clusterkit.planning import places, planned
from clusterkit.planning.dialects import Call, for_version
from clusterkit.planning.environment import Environment
from clusterkit.planning.places import Home
from clusterkit.planning.templating import render
from clusterkit.planning.topology import Node, Topology

TEMPLATE = "paddle-launch.sh.j2"


@dataclass(frozen=True)
class Timeouts:
    """Limits that the supervisors keep, in seconds; the meaning of each is in docs/architecture.md."""

    gate: float = 30
    join: float = 300
    node: float = 20
    grace: float = 40


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
    owner: str = ""


@dataclass(frozen=True)
class NodePlan:
    """Everything that one node gets. `files` (name → text) holds no secret; the run's key and `secrets.json`
    are added when it is launched."""

    node: Node
    run_dir: str
    workdir: str
    log_dir: str
    paddle_version: str
    environment: Environment
    command: tuple[str, ...]
    files: Mapping[str, str] = field(repr=False)

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
    def python(self) -> str:
        """The interpreter of the agent, the launcher and the ranks."""
        return self.node.python

    @property
    def command_text(self) -> str:
        """The launcher's command as a shell takes it, working directory included."""
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
) -> Plan:
    """The plan of a run; every mapping has each node's alias as a key.

    Raises InputError for a Paddle that cannot be launched and for a path or an argument that cannot be used,
    TemplateError for a template that does not render.
    """
    _check_arguments(request)
    settings = {member.alias: member for member in members}
    nodes = tuple(
        _node_plan(
            run_id,
            topology,
            node,
            settings[node.alias].remote_dir,
            environments[node.alias],
            paddle_versions[node.alias],
            homes[node.alias],
            request,
        )
        for node in topology.nodes
    )
    return Plan(run_id, topology, request, nodes, tuple(_warnings(nodes)))


def _node_plan(
    run_id: str,
    topology: Topology,
    node: Node,
    remote_dir: str,
    environment: Environment,
    version: str,
    home: Home,
    request: Request,
) -> NodePlan:
    run = places.run_dir(remote_dir, node.alias, run_id, home.path)
    logs = places.log_dir(run, node.alias, run_id, home)
    workdir = (
        places.code_dir(remote_dir, node.alias, request.code, home.path)
        if request.code
        else request.root.as_posix()
    )
    command = _command(run_id, topology, node, version, run, logs, request)
    values = {
        "run_id": run_id,
        "alias": node.alias,
        "node_rank": node.node_rank,
        "environment": list(environment.set.items()),
        "workdir": workdir,
        "command": command,
    }
    description = _description(run_id, topology, node, workdir, logs, environment, request.timeouts)
    devices = None if node.devices is None else list(node.devices)
    description["hold"] = {"owner": request.owner, "devices": devices}
    files = {
        "plan.json": json.dumps(description, indent=1, ensure_ascii=False) + "\n",
        "node.sh": render(TEMPLATE, values, request.template),
    }
    return NodePlan(node, run, workdir, logs, version, environment, command, MappingProxyType(files))


def _command(
    run_id: str, topology: Topology, node: Node, version: str, run: str, logs: str, request: Request
) -> tuple[str, ...]:
    """The launcher's command line.

    What the launcher takes for the training script is the Python executable, which it starts as it is, since
    the name does not end in `.py`; the rank entry and the user's script are its arguments.
    """
    if node.python.endswith((".py", ".pyxes")):
        raise InputError(
            f"host {node.alias}: python={node.python} ends like a script; Paddle would not run it as it is",
            "point `python` at the interpreter itself, for example through a link with another name",
        )
    call = Call(
        master=f"{topology.nodes[0].node_ip}:{topology.master_port}",
        node_count=len(topology.nodes),
        node_rank=node.node_rank,
        node_ip=node.node_ip,
        devices=node.devices,
        processes=len(node.ranks),
        job_id=run_id,
        log_dir=logs,
    )
    dialect = for_version(version, node.alias)
    assert dialect.options is not None  # for_version refuses the others
    return (
        *(node.python, "-u", "-m", "paddle.distributed.launch", *dialect.options(call)),
        *(node.python, "-u", posixpath.join(run, "agent.pyz"), "rank", run),
        *(_script(request.script), *request.arguments),
    )


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
    environment: Environment,
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
        "world_size": topology.world_size,
        "nodes": [
            {"alias": other.alias, "node_ip": other.node_ip, "ranks": list(other.ranks)}
            for other in topology.nodes
        ],
        "channel_port": topology.channel_port,
        "master_port": topology.master_port,
        "port_window": [topology.port_window.first, topology.port_window.last],
        "job_id": run_id,
        "workdir": workdir,
        "log_dir": logs,
        "keep_environment": list(environment.keep),
        "timeouts": {
            "gate": timeouts.gate,
            "join": timeouts.join,
            "node": timeouts.node,
            "grace": timeouts.grace,
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


def _warnings(nodes: Sequence[NodePlan]) -> list[str]:
    versions: dict[str, list[str]] = {}
    for each in nodes:
        versions.setdefault(each.paddle_version, []).append(each.alias)
    if len(versions) < 2:
        return []
    found = "; ".join(f"{version} on {', '.join(aliases)}" for version, aliases in versions.items())
    return [f"PaddlePaddle is not the same on all hosts ({found}): install one version everywhere"]
