"""The programs that mounting takes."""

from __future__ import annotations

from shlex import join

from clusterkit.steps.engine import Change, Fleet, Severity, State
from clusterkit.steps.storage.base import StorageStep
from clusterkit.steps.storage.declared import PACKAGES, facts_of, lacks_program, mounts
from clusterkit.steps.storage.identity import is_mounted


class MountPrograms(StorageStep):
    """mount(8) has the program that it needs for each declared type. Packages stay when all else is reset."""

    name = "mount programs"

    def desired(self, host: str, fleet: Fleet) -> State:
        """One for each type that does not come with the kernel."""
        return {
            f"mount.{mount.type}": True for mount in mounts(fleet.members[host]) if mount.type in PACKAGES
        }

    def actual(self, host: str, fleet: Fleet) -> State:
        """What is installed; what is mounted already needs nothing."""
        facts = facts_of(host, fleet)
        found: dict[str, bool] = {}
        for mount in mounts(fleet.members[host]):
            there = not lacks_program(mount, facts) or is_mounted(mount, facts.mounts[mount.path])
            key = f"mount.{mount.type}"
            found[key] = found.get(key, True) and there
        return found

    def fix(self, change: Change) -> list[str]:
        """The host's own package manager, if the user allows it and it does no harm."""
        facts = facts_of(change.host, change.fleet)
        packages = self._packages(change)
        if not (change.fleet.permissions.install and facts.manager and packages) or facts.gpu_containers:
            return []
        if facts.manager != "apt-get":
            return [f"{join([facts.manager, '-y', 'install', *packages])} </dev/null"]
        get = "DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q"
        install = f"{get} -y --no-install-recommends install {join(packages)} </dev/null"
        return [f"{install} || {{ {get} update </dev/null; {install}; }}"]

    def severity(self, change: Change) -> Severity:
        """Nothing is installed unasked."""
        return "manual"

    def explain(self, change: Change) -> str:
        return f"{' and '.join(change.keys)} {'are' if len(change.keys) > 1 else 'is'} not installed"

    def hint(self, change: Change) -> str:
        facts, packages = facts_of(change.host, change.fleet), self._packages(change)
        if not facts.manager or not packages:
            return f"install what has {' and '.join(change.keys)}"
        command = f"{facts.manager} install {' '.join(packages)}"
        if facts.gpu_containers:
            return (
                f"as root: {command}, once no container uses the GPUs: installing reloads systemd, which "
                "takes the GPUs away from running containers"
            )
        return f"as root: {command}; or clusterkit preflight --install"

    def _packages(self, change: Change) -> list[str]:
        manager = facts_of(change.host, change.fleet).manager
        types = [key.partition(".")[2] for key in change.keys]
        return list(dict.fromkeys(PACKAGES[kind][manager] for kind in types if manager in PACKAGES[kind]))
