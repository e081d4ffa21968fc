"""The GPUs of a host reach each other over NVLink, where they have it."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.facts import Facts
from clusterkit.probes import GPUS
from clusterkit.probes.gpu_driver import GPU_DRIVER
from clusterkit.probes.gpu_report import GPU_REPORT
from clusterkit.probes.nvlink import NVLINK, NvLinks
from clusterkit.steps.engine import Change, Fleet, Severity, State, Status, Step
from clusterkit.steps.gpus.scope import alike, named, silent, tuple_of, which


class FabricManager(Step):
    """NVSwitches are set up by a service of the driver's own version: without it CUDA does not even start."""

    name = "fabric manager"
    probes = (GPUS, GPU_DRIVER, GPU_REPORT)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Only machines with NVSwitches have one; inside a virtual machine the GPUs alone tell."""
        facts = fleet.facts[host]
        reason = silent(host, fleet)
        return reason or ("" if _switches(facts) or _in_a_fabric(facts) else "no NVSwitch here")

    def desired(self, host: str, fleet: Fleet) -> State:
        """Running, of the driver's version, and every GPU has joined."""
        facts = fleet.facts[host]
        if not _switches(facts):
            return {"not_joined": ()}
        return {"service": "active", "version": facts[GPUS][0].driver, "not_joined": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The service's state, and the GPUs that have not joined."""
        facts = fleet.facts[host]
        waiting = {"not_joined": which(facts, lambda gpu: gpu.fabric not in ("", "Completed"))}
        if not _switches(facts):
            return waiting
        driver = facts[GPU_DRIVER]
        version = driver.fabric_manager_version or facts[GPUS][0].driver
        return {"service": driver.fabric_manager or "not installed", "version": version, **waiting}

    def explain(self, change: Change) -> str:
        parts = []
        if "service" in change.keys:
            parts.append(f"nvidia-fabricmanager is {change.actual['service']}")
        if "version" in change.keys:
            parts.append(
                f"nvidia-fabricmanager is {change.actual['version']}, the driver {change.desired['version']}"
            )
        if "not_joined" in change.keys:
            gpus = tuple_of(change.actual["not_joined"])
            state = next(
                gpu.fabric for gpu in change.facts[GPU_REPORT] if gpu.fabric not in ("", "Completed")
            )
            parts.append(f"{named(gpus)} not in the NVLink fabric (state: {state})")
        return "; ".join(parts)

    def hint(self, change: Change) -> str:
        if "version" in change.keys or change.actual.get("service") == "not installed":
            return f"install nvidia-fabricmanager {change.facts[GPUS][0].driver}, the version of the driver"
        return "as root: systemctl enable --now nvidia-fabricmanager; its log: /var/log/fabricmanager.log"


class NvLink(Step):
    """All GPUs of a host have the same number of links, and as many as other hosts with that model."""

    name = "nvlink"
    probes = (GPUS, NVLINK)
    # Cards without NVLink, and drivers that do not know the command, say so in many ways.
    unknown: Status = "skipped"

    def skip(self, host: str, fleet: Fleet) -> str:
        """Cards that are not connected at all miss nothing."""
        reason = silent(host, fleet)
        linked = reason or alike(host, fleet).once(_any_link)
        return reason or ("" if linked else "no GPU of this model has an active NVLink")

    def desired(self, host: str, fleet: Fleet) -> State:
        """What the GPUs of most hosts with the same model have, and on this host the best one."""
        most = alike(host, fleet).majority(_fewest)
        return {"fewest_links": max(_most(fleet.facts[host]) or 0, most or 0)}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The GPU with the fewest."""
        facts = fleet.facts[host]
        return {"fewest_links": min((gpu.active for gpu in facts[NVLINK]), default=0)}

    def severity(self, change: Change) -> Severity:
        """Behind NVSwitches each link counts; bridges between some cards alone may be meant."""
        facts = change.facts
        return "failed" if _switches(facts) or _in_a_fabric(facts) else "warning"

    def explain(self, change: Change) -> str:
        wanted = change.desired["fewest_links"]
        short = [gpu for gpu in change.facts[NVLINK] if gpu.active != wanted]
        first = short[0]
        links = ",".join(map(str, first.inactive[:8]))
        down = f"; inactive on GPU {first.index}: {links}" if links else ""
        return (
            f"{named(gpu.index for gpu in short)} {_have(short)} {first.active} NVLinks, not {wanted}{down}"
        )

    def hint(self, change: Change) -> str:
        return f"reboot {change.host}; if it stays, look at nvidia-smi nvlink --errorcounters"


def _have(gpus: Sequence[NvLinks]) -> str:
    return "has" if len(gpus) == 1 else "have"


def _switches(facts: Facts) -> int:
    driver = facts.get(GPU_DRIVER)
    return driver.switches if driver else 0


def _in_a_fabric(facts: Facts) -> bool:
    return any(gpu.fabric for gpu in facts.get(GPU_REPORT) or ())


def _any_link(fleet: Fleet) -> bool:
    return any(gpu.active for facts in fleet.facts.values() for gpu in facts.get(NVLINK) or ())


def _fewest(facts: Facts) -> int | None:
    return min((gpu.active for gpu in facts.get(NVLINK) or ()), default=None)


def _most(facts: Facts) -> int | None:
    return max((gpu.active for gpu in facts.get(NVLINK) or ()), default=None)
