"""As many GPUs, and of the model, that the inventory says or that the other hosts have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clusterkit.facts import Facts
from clusterkit.probes import GPUS
from clusterkit.probes.gpu_driver import GPU_DRIVER
from clusterkit.steps.engine import Change, Fleet, Severity, State, Step
from clusterkit.steps.gpus.scope import gpus, models, outvoted, silent


class GpuCount(Step):
    """No card is missing: one that has fallen off the bus is simply not listed any more."""

    name = "gpu count"
    probes = (GPUS, GPU_DRIVER)

    def skip(self, host: str, fleet: Fleet) -> str:
        """That there are none at all is the driver's check."""
        return silent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """`gpu_count`, else as in its group or on most hosts; and all cards of the PCI bus."""
        declared, cards = fleet.members[host].gpu_count, _cards(fleet.facts[host])
        return {
            "gpus": declared if declared is not None else fleet.usual(host, _count),
            "cards": cards or _count(fleet.facts[host]),
        }

    def actual(self, host: str, fleet: Fleet) -> State:
        """What nvidia-smi lists."""
        count = len(fleet.facts[host][GPUS])
        return {"gpus": count, "cards": count}

    def severity(self, change: Change) -> Severity:
        """Hosts may have different numbers of GPUs, on purpose: then it is for the inventory to say so."""
        declared = change.settings.gpu_count is not None and "gpus" in change.keys
        sure = declared or "cards" in change.keys or outvoted(change.host, change.fleet, _count)
        return "failed" if sure else "warning"

    def explain(self, change: Change) -> str:
        count = change.actual["gpus"]
        if "cards" in change.keys:
            return f"nvidia-smi lists {count} GPUs, the PCI bus has {change.desired['cards']}"
        said = "gpu_count is" if change.settings.gpu_count is not None else f"{_others(change, _count)} have"
        return f"nvidia-smi lists {count} GPUs; {said} {change.desired['gpus']}"

    def hint(self, change: Change) -> str:
        count, wanted = change.actual["gpus"], change.desired["gpus"]
        if change.settings.gpu_count is not None or "cards" in change.keys:
            return f"reboot {change.host}; if the card stays away, reseat or replace it"
        if isinstance(count, int) and isinstance(wanted, int) and count > wanted:
            return f"if that is right, write gpu_count={count} for {change.host} in the inventory"
        return (
            f"a lost card comes back with a reboot; if it is right, write gpu_count={count} for {change.host}"
        )


@dataclass(frozen=True)
class Containing:
    """Every one of a list of names has this in it, in any case."""

    text: str

    def met_by(self, actual: Any) -> bool:
        """True if there are names and all fit."""
        return bool(actual) and all(self.text.lower() in str(name).lower() for name in actual)

    def __str__(self) -> str:
        return f"{self.text} in each name"


class GpuModel(Step):
    """One model everywhere or in each group: the slowest GPU sets the pace, and the smallest the batch."""

    name = "gpu model"
    probes = (GPUS,)

    def skip(self, host: str, fleet: Fleet) -> str:
        """That there are none at all is the driver's check."""
        return silent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """`gpu_model`, else the model and the memory that its group or most hosts have."""
        declared = fleet.members[host].gpu_model
        if declared:
            return {"model": Containing(declared), "memory_gib": _memory(fleet.facts[host])}
        return {"model": fleet.usual(host, models), "memory_gib": fleet.usual(host, _memory)}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The different models of the host, and its smallest GPU's memory."""
        facts = fleet.facts[host]
        return {"model": models(facts), "memory_gib": _memory(facts)}

    def severity(self, change: Change) -> Severity:
        """Two models may be meant: then it is for the inventory to say so."""
        sure = change.settings.gpu_model or outvoted(change.host, change.fleet, models)
        return "failed" if sure and "model" in change.keys else "warning"

    def explain(self, change: Change) -> str:
        if "model" not in change.keys:
            own, most = change.actual["memory_gib"], change.desired["memory_gib"]
            return f"its GPUs have {own} GiB, those of {_others(change, _memory)} {most} GiB"
        have = " and ".join(models(change.facts) or ())
        if change.settings.gpu_model:
            return f"its GPUs are {have}; gpu_model is {change.settings.gpu_model}"
        wanted = " and ".join(change.fleet.usual(change.host, models) or ())
        return f"its GPUs are {have}; {_others(change, models)} have {wanted}"

    def hint(self, change: Change) -> str:
        if change.settings.gpu_model:
            return f"correct gpu_model, or take {change.host} out of the inventory"
        return f"if both are meant, write gpu_model for {change.host}'s group in the inventory"


def _others(change: Change, read: Callable[[Facts], object]) -> str:
    return "most of its group" if change.fleet.agreed(change.host, read) else "most hosts"


def _count(facts: Facts) -> int | None:
    return len(gpus(facts)) or None


def _cards(facts: Facts) -> int:
    driver = facts.get(GPU_DRIVER)
    return len(driver.cards) if driver else 0


def _memory(facts: Facts) -> int | None:
    """In GiB: drivers differ in how much they keep for themselves."""
    return min((round(gpu.memory / 1024) for gpu in gpus(facts) if gpu.memory), default=None)
