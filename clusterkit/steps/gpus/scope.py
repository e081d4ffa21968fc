"""Which hosts should have GPUs, and how GPUs are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from clusterkit.facts import Facts
from clusterkit.inventory.model import Settings
from clusterkit.probes import GPUS
from clusterkit.probes.gpu import Gpu
from clusterkit.probes.gpu_report import GPU_REPORT, GpuReport
from clusterkit.steps.engine import Fleet

V = TypeVar("V")


def not_expected(host: str, fleet: Fleet) -> str:
    """Why no GPUs are looked for on this host; "" if they are."""
    if fleet.members[host].gpu_count == 0:
        return "gpu_count is 0"
    return "" if fleet.once(_for_gpus) else "no host of the inventory computes on GPUs"


def silent(host: str, fleet: Fleet) -> str:
    """Why this host's GPUs are not judged; "" if they are. That there are none is the driver's check."""
    reason = not_expected(host, fleet)
    if reason:
        return reason
    return "" if has_gpus(fleet.facts[host]) else "nvidia-smi lists no GPUs here"


def _for_gpus(fleet: Fleet) -> bool:
    """An inventory that says so, or a job planned on GPUs; without a plan, any host with a GPU."""
    if any(_declares(settings) for settings in fleet.members.values()):
        return True
    if fleet.topology:
        # A host that cannot take part may be one whose driver does not answer.
        unplanned = [facts for host, facts in fleet.facts.items() if not fleet.node(host)]
        planned = any(node.devices for node in fleet.topology.nodes)
        return planned or any(facts.failure(GPUS) for facts in unplanned)
    return any(facts.failure(GPUS) or has_gpus(facts) for facts in fleet.facts.values())


def _declares(settings: Settings) -> bool:
    return bool(settings.devices or settings.gpu_count or settings.gpu_model or settings.driver_min)


def gpus(facts: Facts) -> tuple[Gpu, ...]:
    """What nvidia-smi lists; nothing where it lists nothing, or fails."""
    return facts.get(GPUS) or ()


def has_gpus(facts: Facts) -> bool:
    """Whether nvidia-smi lists any."""
    return len(gpus(facts)) > 0


def indexes(facts: Facts) -> dict[str, int]:
    """Each GPU's number by its UUID."""
    return {gpu.uuid: gpu.index for gpu in gpus(facts)}


def which(facts: Facts, holds: Callable[[GpuReport], object]) -> tuple[str, ...]:
    """The numbers of the GPUs for which it holds. Raises ProbeFailed without a report."""
    numbers = indexes(facts)
    report: tuple[GpuReport, ...] = facts[GPU_REPORT]
    return tuple(str(numbers.get(gpu.uuid, position)) for position, gpu in enumerate(report) if holds(gpu))


def named(numbers: Iterable[object]) -> str:
    """`GPU 3`, or `GPUs 0,3`."""
    found = [str(number) for number in numbers]
    return f"GPU{'s'[: len(found) != 1]} {','.join(found)}"


def tuple_of(value: object) -> tuple[str, ...]:
    """A state's value that is a list of GPUs."""
    return value if isinstance(value, tuple) else ()


def models(facts: Facts) -> tuple[str, ...] | None:
    """The different GPU models of a host, sorted; None without GPUs."""
    return tuple(sorted({gpu.name for gpu in gpus(facts)})) or None


def alike(host: str, fleet: Fleet) -> Fleet:
    """The part of the fleet that has this host's GPU models, itself included.

    What belongs to a model (links, ECC) is compared there: a smaller group of another model is not a fault.
    """
    return fleet.once(_by_models)[models(fleet.facts[host])]


def _by_models(fleet: Fleet) -> dict[tuple[str, ...] | None, Fleet]:
    found: dict[tuple[str, ...] | None, dict[str, Facts]] = {}
    for host, facts in fleet.facts.items():
        found.setdefault(models(facts), {})[host] = facts
    return {key: replace(fleet, facts=facts) for key, facts in found.items()}


def outvoted(host: str, fleet: Fleet, read: Callable[[Facts], V | None]) -> bool:
    """Whether the host's group agrees, or more than half of all hosts: one that differs is then a fault."""
    if fleet.agreed(host, read):
        return True
    values, most = list(fleet.each(read).values()), fleet.majority(read)
    return 2 * sum(value == most for value in values) > len(values)
