"""The host does not wait for a reboot."""

from __future__ import annotations

from clusterkit.probes import HOST
from clusterkit.probes.boot import BOOT
from clusterkit.steps.engine import Change, Fleet, Recorded, Severity, State, Step


class PendingReboot(Step):
    """No update waits for a reboot: a new driver or kernel then takes effect in the middle of a long job."""

    name = "reboot"
    probes = (BOOT, HOST)

    def desired(self, host: str, fleet: Fleet) -> State:
        """None is wanted, and the running kernel's modules are there."""
        return {"wanted": False, "modules": True, "uptime_h": Recorded()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What the package manager left in /run, and what is in /lib/modules."""
        boot = fleet.facts[host][BOOT]
        return {
            "wanted": bool(boot.wanted_by),
            "modules": boot.modules,
            "uptime_h": round(boot.uptime_s / 3600, 1),
        }

    def severity(self, change: Change) -> Severity:
        """The host works until then."""
        return "warning"

    def explain(self, change: Change) -> str:
        if "modules" in change.keys:
            return f"the modules of the running kernel {change.facts[HOST].kernel} are gone from /lib/modules"
        packages = [package for package in change.facts[BOOT].wanted_by if package]
        named = f" (for {', '.join(packages[:3])})" if packages else ""
        return f"a reboot is pending{named}"

    def hint(self, change: Change) -> str:
        return f"reboot {change.host} before a long job"
