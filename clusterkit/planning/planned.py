"""A plan as people, programs and files get it: `--dry-run`, `--json` and `--output DIR`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.errors import InputError
from clusterkit.planning.places import file_name

if TYPE_CHECKING:
    from clusterkit.planning.plan import NodePlan, Plan


def as_text(plan: Plan, show_env: bool) -> str:
    """The plan for a person: each node's exact command, the user's values masked unless `show_env`."""
    topology = plan.topology
    head = (
        f"run {plan.run_id}: {topology.world_size} {_plural('rank', topology.world_size)} on "
        f"{len(plan.nodes)} {_plural('node', len(plan.nodes))}, "
        f"master {plan.master}, ports {topology.port_window}"
    )
    warnings = [f"warning: {warning}" for warning in plan.warnings]
    return "\n".join([head, *warnings, *(_node_text(node, show_env) for node in plan.nodes)]) + "\n"


def as_json(plan: Plan, show_env: bool) -> dict[str, Any]:
    """The plan for a program, schema 1; the user's values masked unless `show_env`."""
    topology = plan.topology
    return {
        "schema": 1,
        "run_id": plan.run_id,
        "state": "planned",
        "world_size": topology.world_size,
        "master": plan.master,
        "channel_port": topology.channel_port,
        "port_window": [topology.port_window.first, topology.port_window.last],
        "script": plan.request.script,
        "arguments": list(plan.request.arguments),
        "warnings": list(plan.warnings),
        "nodes": [_node_json(node, show_env) for node in plan.nodes],
    }


def write(plan: Plan, directory: Path) -> list[Path]:
    """Each node's files are in `directory/ALIAS/`, readable by their owner alone; returns their paths.

    These are the files that would be sent: values of `--env` and `env_*` are in them, of `--env-file` none.
    """
    written = []
    try:
        for node in plan.nodes:
            place = directory / file_name(node.alias)
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            written += [_write(place / name, text) for name, text in node.files.items()]
    except OSError as error:
        raise InputError(
            f"{error.filename}: {error.strerror}", "choose another --output directory"
        ) from error
    return written


def _write(path: Path, text: str) -> Path:
    """Created 0600 from the start; an older file of the same name is replaced, not followed."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return path


def _node_text(plan: NodePlan, show_env: bool) -> str:
    node, environment = plan.node, plan.environment
    devices = (
        f"{_plural('device', len(node.devices))} {','.join(map(str, node.devices))}"
        if node.devices
        else "CPU"
    )
    ranks = f"{_plural('rank', len(node.ranks))} {_span(node.ranks)}" if node.ranks else "no rank"
    if node.servers:
        ranks += f"  {_plural('server', len(node.servers))} {_span(node.servers)}"
    lines = [
        "",
        f"node {node.node_rank}  {node.alias}  {node.node_ip} ({node.interface})  {ranks}  {devices}  "
        f"{f'PaddlePaddle {plan.paddle_version}' if plan.paddle_version else 'no PaddlePaddle'}",
        f"  run      {plan.run_dir}",
        f"  logs     {plan.log_dir}",
        *([f"  start    {shlex.join(plan.container.command)}"] if plan.container else []),
        f"  command  {plan.command_text}",
        *(f"  set      {name}={value}" for name, value in environment.shown(show_env).items()),
    ]
    if environment.secrets:
        lines.append(f"  secret   {', '.join(sorted(environment.secrets))} (for the ranks only)")
    lines += [f"  removed  {name}: {why}" for name, why in environment.removed.items()]
    return "\n".join(lines)


def _node_json(plan: NodePlan, show_env: bool) -> dict[str, Any]:
    node, environment = plan.node, plan.environment
    return {
        "host": node.alias,
        "node_rank": node.node_rank,
        "node_ip": node.node_ip,
        "interface": node.interface,
        "ranks": list(node.ranks),
        "servers": list(node.servers),
        "devices": None if node.devices is None else list(node.devices),
        "python": node.python,
        "paddle_version": plan.paddle_version,
        "run_dir": plan.run_dir,
        "workdir": plan.workdir,
        "log_dir": plan.log_dir,
        "command": list(plan.command),
        "container": _container_json(plan),
        "environment": {
            "keep": list(environment.keep),
            "set": environment.shown(show_env),
            "secrets": sorted(environment.secrets),
            "removed": dict(environment.removed),
        },
    }


def _container_json(plan: NodePlan) -> dict[str, Any] | None:
    container = plan.container
    if container is None:
        return None
    return {
        "runtime": container.kind,
        "image": container.image,
        "name": container.name,
        "python": container.python,
        "command": list(container.command),
    }


def _span(ranks: tuple[int, ...]) -> str:
    """A node's ranks are always consecutive."""
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
