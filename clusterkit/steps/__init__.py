"""What must hold on a host. One file a topic; the list below is explicit and in the order of the report.

Add a step: docs/steps.md. What each one says and why: docs/checks-launch.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusterkit.facts import Facts, Probe
from clusterkit.inventory.model import Settings
from clusterkit.planning.topology import Topology
from clusterkit.steps import container, gpus, storage
from clusterkit.steps.boot import PendingReboot
from clusterkit.steps.clock import ClockOffset
from clusterkit.steps.disk import DiskSpace, RunDirectory
from clusterkit.steps.engine import (
    LAUNCH,
    PLAN,
    Fleet,
    Step,
    Verdict,
    counts,
    exit_code,
    judge,
    judge_all,
    settled,
)
from clusterkit.steps.firewall import Firewall, FirewallAtBoot, FirewallOut
from clusterkit.steps.limits import Limits
from clusterkit.steps.login_environment import LoginEnvironment
from clusterkit.steps.logind import OutlivesLogin
from clusterkit.steps.machine import OwnMachineId
from clusterkit.steps.memory import Memory
from clusterkit.steps.name import HostName
from clusterkit.steps.node_ip import NodeAddress
from clusterkit.steps.ports import PortsFree
from clusterkit.steps.python import GompLibrary, Interpreter, PaddleInstalled, SamePaddle, SamePython
from clusterkit.steps.root import Sudo
from clusterkit.steps.runs import LeftOverProcesses, OtherRuns
from clusterkit.steps.shm import SharedMemory
from clusterkit.tables import Tables

__all__ = [
    "LAUNCH",
    "PLAN",
    "Fleet",
    "Step",
    "Verdict",
    "check",
    "chosen",
    "counts",
    "exit_code",
    "judge",
    "judge_all",
    "probes",
    "settled",
]

ALL: tuple[Step, ...] = (
    NodeAddress(),
    HostName(),
    OwnMachineId(),
    ClockOffset(),
    Sudo(),
    PendingReboot(),
    OutlivesLogin(),
    LoginEnvironment(),
    Limits(),
    Memory(),
    Interpreter(),
    PaddleInstalled(),
    SamePaddle(),
    SamePython(),
    GompLibrary(),
    RunDirectory(),
    DiskSpace(),
    SharedMemory(),
    gpus.GpuDriver(),
    gpus.DriverVersion(),
    gpus.GpuArchitecture(),
    gpus.GpuCount(),
    gpus.GpuModel(),
    gpus.GpuModes(),
    gpus.PersistenceMode(),
    gpus.GpuMemory(),
    gpus.GpuErrors(),
    gpus.FabricManager(),
    gpus.NvLink(),
    gpus.GpuProcesses(),
    gpus.HeldMemory(),
    container.ContainerRuntime(),
    container.ImageSpace(),
    container.ImagePresent(),
    container.SameImage(),
    container.ImageArchitecture(),
    container.ImageVariables(),
    container.ContainerStarts(),
    container.ImagePaddle(),
    container.ContainerMemory(),
    container.ContainerLimits(),
    container.ImageRdma(),
    container.GpuContainers(),
    container.GpusSurviveReload(),
    container.LeftOverContainers(),
    LeftOverProcesses(),
    OtherRuns(),
    PortsFree(),
    Firewall(),
    FirewallAtBoot(),
    FirewallOut(),
    *storage.STEPS,
)


def chosen(tag: str | None = None) -> tuple[Step, ...]:
    """The steps that carry the tag (all without one), in the order of the report."""
    return tuple(step for step in ALL if tag is None or tag in step.tags)


def probes(steps: Sequence[Step]) -> tuple[Probe[Any], ...]:
    """Every probe that these steps read, once."""
    return tuple({probe.name: probe for step in steps for probe in step.probes}.values())


def check(
    members: Sequence[Settings],
    facts: Mapping[str, Facts],
    topology: Topology | None,
    tag: str = LAUNCH,
    tables: Tables | None = None,
) -> list[Verdict]:
    """What every step of the tag says about every host whose facts are there (pure).

    `tables` are those with the site's own entries, None for those that are shipped.
    """
    fleet = Fleet({settings.alias: settings for settings in members}, facts, topology, tables, starting=True)
    return judge_all(chosen(tag), fleet)
