"""Each GPU is in the mode that training needs, and its memory is sound."""

from __future__ import annotations

from collections import Counter

from clusterkit.probes import GPUS
from clusterkit.probes.gpu_report import GPU_REPORT
from clusterkit.steps.engine import Change, Fleet, Severity, State, Step
from clusterkit.steps.gpus.scope import alike, named, silent, tuple_of, which


class PersistenceMode(Step):
    """The driver stays loaded: otherwise each start waits seconds a GPU, and set limits are lost."""

    name = "persistence mode"
    probes = (GPUS, GPU_REPORT)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Nothing to judge without GPUs."""
        return silent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """On, for all."""
        return {"off": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The GPUs where it is off."""
        return {"off": which(fleet.facts[host], lambda gpu: gpu.persistence is False)}

    def severity(self, change: Change) -> Severity:
        """Slow, not wrong."""
        return "warning"

    def explain(self, change: Change) -> str:
        return f"persistence mode is off on {named(tuple_of(change.actual['off']))}"

    def hint(self, change: Change) -> str:
        return (
            "as root: systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1 (until the next boot)"
        )


class GpuModes(Step):
    """Whole GPUs (no MIG), open to any process: NCCL does not connect slices."""

    name = "gpu modes"
    probes = (GPUS, GPU_REPORT)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Nothing to judge without GPUs."""
        return silent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """MIG off, compute mode Default."""
        return {"mig": (), "prohibited": (), "exclusive": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The GPUs that are otherwise."""
        facts = fleet.facts[host]
        return {
            "mig": which(facts, lambda gpu: gpu.mig),
            "prohibited": which(facts, lambda gpu: gpu.compute_mode == "Prohibited"),
            "exclusive": which(facts, lambda gpu: gpu.compute_mode.startswith("Exclusive")),
        }

    def severity(self, change: Change) -> Severity:
        """One process a GPU is all that most jobs need."""
        return "warning" if change.keys == ("exclusive",) else "failed"

    def explain(self, change: Change) -> str:
        words = {
            "mig": "MIG is enabled on",
            "prohibited": "compute mode is Prohibited on",
            "exclusive": "compute mode lets only one process use",
        }
        return "; ".join(f"{words[key]} {named(tuple_of(change.actual[key]))}" for key in change.keys)

    def hint(self, change: Change) -> str:
        key = change.keys[0]
        gpus = ",".join(tuple_of(change.actual[key]))
        return f"as root: nvidia-smi -i {gpus} " + (
            "-mig 0, with nothing running on it" if key == "mig" else "-c DEFAULT"
        )


class GpuMemory(Step):
    """No memory error that ECC could not correct, and no repair that waits for a reset."""

    name = "gpu memory"
    probes = (GPUS, GPU_REPORT)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Nothing to judge without GPUs."""
        return silent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """ECC as on most GPUs of hosts with this model (workstation cards come with it off)."""
        return {"repair_failed": (), "uncorrected": (), "repair_pending": (), "recovery": (), "ecc_off": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The GPUs that are otherwise."""
        facts, ecc = fleet.facts[host], alike(host, fleet).once(_mostly_ecc)
        return {
            "repair_failed": which(facts, lambda gpu: gpu.repair_failed),
            "uncorrected": which(facts, lambda gpu: gpu.uncorrected),
            "repair_pending": which(facts, lambda gpu: gpu.repair_pending),
            "recovery": which(facts, lambda gpu: gpu.recovery),
            "ecc_off": which(facts, lambda gpu: ecc and gpu.ecc is False),
        }

    def severity(self, change: Change) -> Severity:
        """Without ECC errors go unseen; with one seen, results are wrong."""
        return "warning" if change.keys == ("ecc_off",) else "failed"

    def explain(self, change: Change) -> str:
        words = {
            "repair_failed": "memory could not be repaired on",
            "uncorrected": f"{_errors(change)} uncorrected memory errors since the driver was loaded on",
            "repair_pending": "a memory repair waits for a reset of",
            "recovery": f'the driver asks for "{_recovery(change)}" of',
            "ecc_off": "ECC is off on",
        }
        return "; ".join(f"{words[key]} {named(tuple_of(change.actual[key]))}" for key in change.keys)

    def hint(self, change: Change) -> str:
        key = change.keys[0]
        gpus = ",".join(tuple_of(change.actual[key]))
        if key == "repair_failed":
            return "replace the card"
        if key == "ecc_off":
            return f"as root: nvidia-smi -i {gpus} -e 1, then reboot"
        return (
            f"as root, with nothing running on it: nvidia-smi --gpu-reset -i {gpus}; or reboot {change.host}"
        )


def _mostly_ecc(fleet: Fleet) -> bool:
    reports = (facts.get(GPU_REPORT) or () for facts in fleet.facts.values())
    counted = Counter(gpu.ecc for report in reports for gpu in report)
    return counted[True] > counted[False]


def _errors(change: Change) -> int:
    return sum(gpu.uncorrected or 0 for gpu in change.facts[GPU_REPORT])


def _recovery(change: Change) -> str:
    return next((gpu.recovery for gpu in change.facts[GPU_REPORT] if gpu.recovery), "")
