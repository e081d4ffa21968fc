"""What must be the same on all hosts: what is mounted, and the data set."""

from __future__ import annotations

from collections import Counter
from typing import Any

from clusterkit.facts import TIMED_OUT, Facts, Probe
from clusterkit.probes.dataset import DATA, LIMIT_S, DataSet
from clusterkit.probes.storage import STORAGE
from clusterkit.steps.engine import Change, Fleet, Severity, State, Step
from clusterkit.steps.storage.base import StorageStep
from clusterkit.steps.storage.declared import ANSWERS, answer, mounts, present, server_side
from clusterkit.steps.storage.identity import is_mounted, place_of

_TOO_LARGE = f"cannot be counted within {LIMIT_S} s, so it is not compared"


class SameStorage(StorageStep):
    """The same server and export on a path on all hosts: by vote, so that nobody has to say what is right.

    A warning, since one server may be reached by several names; what a host writes there and the others read
    (or do not) is the proof.
    """

    name = "same storage"

    def skip(self, host: str, fleet: Fleet) -> str:
        return super().skip(host, fleet) or ("" if _places(host, fleet) else "nothing shared is mounted")

    def desired(self, host: str, fleet: Fleet) -> State:
        most = fleet.once(_majorities)
        return {path: most[path] for path in _places(host, fleet)}

    def actual(self, host: str, fleet: Fleet) -> State:
        return dict(_places(host, fleet))

    def severity(self, change: Change) -> Severity:
        return "warning"

    def explain(self, change: Change) -> str:
        return "; ".join(
            f"{path} is {change.actual[path]} here, and {change.desired[path]} on most hosts"
            for path in change.keys
        )

    def hint(self, change: Change) -> str:
        return "declare one source for all hosts that share files there (in a group, not host by host)"


def _places(host: str, fleet: Fleet) -> dict[str, str]:
    return {mount.path: place_of(seen) for mount, seen in present(host, fleet) if server_side(mount)}


def _majorities(fleet: Fleet) -> dict[str, str]:
    counted: dict[str, Counter[str]] = {}
    for host, facts in fleet.facts.items():
        if facts.failure(STORAGE) is None:
            for path, place in _places(host, fleet).items():
                counted.setdefault(path, Counter())[place] += 1
    # Of equally many the first in inventory order, as Counter keeps it.
    return {path: of_path.most_common(1)[0][0] for path, of_path in counted.items()}


class SameData(Step):
    """The data set at `data_path` has the same names, sizes and, in a sample, bytes on all hosts."""

    name = "data set"
    probes: tuple[Probe[Any], ...] = (DATA, STORAGE)

    def skip(self, host: str, fleet: Fleet) -> str:
        settings = fleet.members[host]
        if settings.data_path is None:
            return "the inventory declares no data_path"
        storage = fleet.facts[host].get(STORAGE)
        for mount in mounts(settings):
            inside = f"{settings.data_path}/".startswith(f"{mount.path}/")
            if not inside or not storage:
                continue
            seen = storage.mounts[mount.path]
            if not is_mounted(mount, seen):
                return f"{mount.path} is not mounted yet"
            if answer(mount, seen) != ANSWERS:
                return f"{mount.path} does not answer"
        return ""

    def desired(self, host: str, fleet: Fleet) -> State:
        """What most hosts have; a host on its own only has to have something."""
        most = fleet.majority(_complete) or DataSet()
        return (
            {**_state(most), "problem": "", "unreadable": 0}
            if most.files
            else {"problem": "", "unreadable": 0}
        )

    def actual(self, host: str, fleet: Fleet) -> State:
        found = _found(fleet.facts[host])
        state = {
            "problem": found.problem or ("" if found.files else "is empty"),
            "unreadable": found.unreadable,
        }
        return {**_state(found), **state}

    def severity(self, change: Change) -> Severity:
        """What is too large to be compared may well be equal."""
        return "warning" if change.actual["problem"] == _TOO_LARGE else "failed"

    def explain(self, change: Change) -> str:
        path, actual = change.settings.data_path, change.actual
        if "problem" in change.keys:
            return f"{path} {actual['problem']}"
        if "unreadable" in change.keys:
            return f"{actual['unreadable']} files or directories of {path} cannot be read by this login"
        desired = change.desired
        if {"files", "bytes"} & set(change.keys):
            return f"{path} has {_amount(actual)} here, and {_amount(desired)} on most hosts"
        return f"{path} has as many files and bytes as on most hosts, but other names or other contents"

    def hint(self, change: Change) -> str:
        if "problem" in change.keys or "unreadable" in change.keys:
            return f"look at it there: ls -la {change.settings.data_path}"
        return "mount one copy on all hosts, or copy it again: rsync -a --checksum"


def _found(facts: Facts) -> DataSet:
    """Raises ProbeFailed, but for a data set that is only too large."""
    failure = facts.failure(DATA)
    if failure is not None and failure.status == TIMED_OUT:
        return DataSet(problem=_TOO_LARGE)
    return facts[DATA] or DataSet()


def _complete(facts: Facts) -> DataSet | None:
    found = facts.get(DATA)
    return found if found is not None and found.files and not found.problem and not found.unreadable else None


def _state(found: DataSet) -> dict[str, Any]:
    return {"files": found.files, "bytes": found.bytes, "sample": found.digest[:12]}


def _amount(state: State) -> str:
    files, size = state["files"], state["bytes"]
    return f"{files} files, {size} bytes"
