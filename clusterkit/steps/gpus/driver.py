"""The NVIDIA driver answers, and is the one that is installed."""

from __future__ import annotations

from clusterkit.facts import NOT_FOUND, TIMED_OUT
from clusterkit.probes import GPUS
from clusterkit.probes.gpu_driver import GPU_DRIVER, DriverFacts
from clusterkit.steps.engine import Change, Fleet, Severity, State, Step
from clusterkit.steps.gpus.scope import has_gpus, not_expected

# What nvidia-smi ends with.
NO_PERMISSION, NO_DEVICES, NOT_LOADED, NO_LIBRARY, LOST, MISMATCH = 4, 6, 9, 12, 15, 18


class GpuDriver(Step):
    """nvidia-smi answers in time, and the kernel runs the driver whose libraries are installed.

    An update that waits for a reboot looks like a host without a driver, and is none.
    """

    name = "nvidia driver"
    probes = (GPUS, GPU_DRIVER)

    def skip(self, host: str, fleet: Fleet) -> str:
        """On a CPU cluster nothing is missing."""
        return not_expected(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """The installed version in the kernel, and device files that the login may use."""
        return {"answers": True, "loaded": _installed(fleet.facts[host].get(GPU_DRIVER)), "denied": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Whether there was an answer with a GPU in it; the kernel's version where it can be read."""
        facts = fleet.facts[host]
        driver = facts.get(GPU_DRIVER)
        return {
            "answers": has_gpus(facts),
            "loaded": driver.loaded if driver else "",
            "denied": driver.denied if driver else (),
        }

    def severity(self, change: Change) -> Severity:
        """A driver that answers although another is installed will do until the next reboot."""
        return "warning" if change.keys == ("loaded",) else "failed"

    def explain(self, change: Change) -> str:
        driver = change.facts.get(GPU_DRIVER)
        if "loaded" in change.keys and _status(change) in (0, MISMATCH):
            loaded, installed = change.actual["loaded"], change.desired["loaded"]
            return f"driver {loaded} is loaded, {installed} is installed: reboot needed"
        if "answers" not in change.keys:
            return f"{_user(change)} may not use {', '.join(driver.denied if driver else ())}"
        return _why_silent(change, driver)

    def hint(self, change: Change) -> str:
        host, status = change.host, _status(change)
        if "answers" not in change.keys and "loaded" not in change.keys:
            return (
                f"as root: usermod -aG video {_user(change)} (or the group of these files), and log in again"
            )
        return {
            0: f"reboot {host}",
            MISMATCH: f"reboot {host}; to decide yourself when, hold the driver's packages (apt-mark hold)",
            TIMED_OUT: f"look for Xid in the kernel log (as root: dmesg | grep Xid), then reboot {host}",
            NO_PERMISSION: f"as root: usermod -aG video {_user(change)} (or the group of /dev/nvidia*)",
            NOT_LOADED: "as root: modprobe nvidia; if that fails, it was not built for this kernel",
            NO_LIBRARY: "install the driver's libraries again, of the version that is loaded",
            LOST: f"reboot {host}; if the card stays away, reseat or replace it",
        }.get(status, _without_a_driver(change) if status == NOT_FOUND else f"run nvidia-smi on {host}")


def _installed(driver: DriverFacts | None) -> str:
    """The installed version, if it differs from the loaded one; else that one."""
    if driver is None:
        return ""
    others = [version for version in (driver.library, driver.on_disk) if version and version != driver.loaded]
    return others[0] if others and driver.loaded else driver.loaded


def _status(change: Change) -> int:
    """nvidia-smi's exit status; 127 where there is none."""
    failure = change.facts.failure(GPUS)
    if failure:
        return failure.status
    return 0 if change.facts.get(GPUS) else NOT_FOUND


def _user(change: Change) -> str:
    return change.settings.user or "the login user"


def _why_silent(change: Change, driver: DriverFacts | None) -> str:
    failure = change.facts.failure(GPUS)
    cards = len(driver.cards) if driver else 0
    if failure is None:
        if not cards:
            return "no GPU: there is no nvidia-smi, and no NVIDIA card on the PCI bus"
        held = ", and nouveau holds them" if driver and driver.nouveau else ""
        return f"{cards} NVIDIA card{'s'[: cards != 1]} but no driver: there is no nvidia-smi{held}"
    return {
        TIMED_OUT: f"{failure.message}: the driver hangs",
        MISMATCH: "the driver's libraries are newer than the loaded module: reboot needed",
        NOT_LOADED: "the driver is installed but not loaded",
        NO_DEVICES: f"nvidia-smi finds no GPU; the PCI bus has {cards} NVIDIA card{'s'[: cards != 1]}",
    }.get(failure.status, failure.message)


def _without_a_driver(change: Change) -> str:
    driver = change.facts.get(GPU_DRIVER)
    if driver and driver.cards:
        first = "keep nouveau away (blacklist nouveau) and " if driver.nouveau else ""
        return f"{first}install NVIDIA's driver"
    return f"take {change.host} out of the inventory, or write gpu_count=0 for it"
