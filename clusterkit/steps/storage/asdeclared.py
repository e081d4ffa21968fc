"""Whether what is mounted is mounted as declared, and survives a reboot without its server."""

from __future__ import annotations

from clusterkit.steps.engine import AtLeast, Change, Fleet, Severity, State
from clusterkit.steps.storage import fstab
from clusterkit.steps.storage.base import StorageStep
from clusterkit.steps.storage.declared import facts_of, line_for, present
from clusterkit.steps.storage.options import differing


class MountOptions(StorageStep):
    """Those options that the kernel shows and that matter. Never remounted: a job may be using it."""

    name = "mount options"

    def skip(self, host: str, fleet: Fleet) -> str:
        return super().skip(host, fleet) or ("" if present(host, fleet) else "nothing is mounted")

    def desired(self, host: str, fleet: Fleet) -> State:
        return {key: wanted for key, (wanted, _) in self._pairs(host, fleet).items()}

    def actual(self, host: str, fleet: Fleet) -> State:
        return {key: there for key, (_, there) in self._pairs(host, fleet).items()}

    def _pairs(self, host: str, fleet: Fleet) -> dict[str, tuple[str, str]]:
        """Key → (declared, what holds)."""
        facts, found = facts_of(host, fleet), {}
        for mount, seen in present(host, fleet):
            wrong = differing(mount.options, seen.mounted.options if seen.mounted else ())
            there = ",".join(other for _, other in wrong)
            found[mount.path] = (
                ",".join(option for option, _ in wrong) or "as declared",
                there or "as declared",
            )
            line = line_for(mount, facts)
            lacking = fstab.missing(line) if line is not None else ()
            key = f"{mount.path} in /etc/fstab"
            found[key] = ("nofail", f"without {' and '.join(lacking)}" if lacking else "nofail")
        return found

    def severity(self, change: Change) -> Severity:
        """A host that hangs at boot is a risk; other options than declared are another file system."""
        return "manual" if any(not key.endswith("/etc/fstab") for key in change.keys) else "warning"

    def explain(self, change: Change) -> str:
        return "; ".join(
            f"{key} is {change.actual[key]}: this host may wait for the server when it boots"
            if key.endswith("/etc/fstab")
            else f"{key} is mounted with {change.actual[key]}, not {change.desired[key]}"
            for key in change.keys
        )

    def hint(self, change: Change) -> str:
        path = change.keys[0]
        if path.endswith("/etc/fstab"):
            return "add the options to that line; it is not ours, so it is left alone"
        return f"as root, when nothing uses it: umount {path}; then clusterkit preflight"


class StorageSpace(StorageStep):
    """Room for checkpoints: bytes, and files."""

    name = "storage space"

    def skip(self, host: str, fleet: Fleet) -> str:
        return super().skip(host, fleet) or ("" if present(host, fleet) else "nothing is mounted")

    def desired(self, host: str, fleet: Fleet) -> State:
        return {
            key: AtLeast(fleet.members[host].threshold("storage_free_percent"))
            for mount, _ in present(host, fleet)
            for key in (f"{mount.path} free %", f"{mount.path} free files %")
        }

    def actual(self, host: str, fleet: Fleet) -> State:
        found: dict[str, float] = {}
        for mount, seen in present(host, fleet):
            room = seen.room
            found[f"{mount.path} free %"] = _percent(room.free_bytes, room.bytes) if room else 100
            found[f"{mount.path} free files %"] = _percent(room.free_files, room.files) if room else 100
        return found

    def severity(self, change: Change) -> Severity:
        return "warning"

    def explain(self, change: Change) -> str:
        return "; ".join(_scarce(key, change.actual[key]) for key in change.keys)

    def hint(self, change: Change) -> str:
        return "make room, or checkpoints will fail in the middle of a job"


def _scarce(key: str, percent: object) -> str:
    path = key.removesuffix(" %").removesuffix(" files").removesuffix(" free")
    what = f"of the files that {path} can hold" if key.endswith("files %") else f"of {path}"
    return f"only {percent} % {what} is free"


def _percent(part: int, whole: int) -> float:
    """A server that counts neither bytes nor files has enough of them."""
    return round(100 * part / whole, 1) if whole else 100.0
