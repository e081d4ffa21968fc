"""What a run left behind, as far as it could be had: the value that a diagnosis is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clusterkit.probes.gpu_processes import GpuProcess
from clusterkit.probes.kernel_log import KernelLine
from clusterkit.runs import processes


@dataclass(frozen=True)
class Remains:
    """`status` is the run's document; `logs` are the ends of the ranks' (by their `runs.processes` number).

    `kernel` and `gpus` are by host, for those that were asked and answered; `away` says why others did not.
    `unread` are sentences about what could not be read although the host answered.
    """

    status: Mapping[str, Any]
    logs: Mapping[int, str] = field(default_factory=dict)
    launchers: Mapping[str, str] = field(default_factory=dict)
    kernel: Mapping[str, tuple[KernelLine, ...]] = field(default_factory=dict)
    gpus: Mapping[str, tuple[GpuProcess, ...]] = field(default_factory=dict)
    away: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def has_failed(status: Mapping[str, Any]) -> bool:
    """True for a run that ended otherwise than well, and not because a person wanted it to."""
    return status.get("state") in ("failed", "lost")


def first_failed(status: Mapping[str, Any]) -> int | None:
    """The rank or server that the nodes found to have failed first; None if it was something else."""
    root = status.get("root")
    if not root:
        return None
    return processes.server(int(root["server"])) if "server" in root else int(root["rank"])


def entry_of(status: Mapping[str, Any], process: int) -> Mapping[str, Any]:
    """The entry of a rank or a server in the status document; empty if there is none."""
    kind, number = next(iter(processes.keys(process).items()))
    return next((each for each in status.get(f"{kind}s", []) if each[kind] == number), {})


def failed_at(status: Mapping[str, Any]) -> float | None:
    """When it happened, in Unix seconds by this machine's clock; None if the record does not say.

    A node that was lost, or a launcher, leaves the time at which the first node ended.
    """
    process = first_failed(status)
    said = entry_of(status, process).get("ended_at") if process is not None else None
    ends = [said] if said else [node["ended_at"] for node in status.get("nodes", []) if node.get("ended_at")]
    return min(datetime.fromisoformat(end).timestamp() for end in ends) if ends else None
