"""Use case: a small all-reduce through the launch path on all nodes, and nothing of it left afterwards.

What it needs is what a job needs: the plan, the environment, the image, the ports, Paddle's rendezvous, and a
collective operation over the training network whose result is right.
"""

from __future__ import annotations

import json
import posixpath
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterkit import smoke_job
from clusterkit.between.figures import figures
from clusterkit.errors import ClusterkitError, FleetError, Interrupted
from clusterkit.interrupts import Interrupts
from clusterkit.inventory.model import Settings
from clusterkit.launch import Manner, launch
from clusterkit.planning.plan import NodePlan, Timeouts
from clusterkit.preflight import Doing, Finding
from clusterkit.prepare import Order, Prepared, prepare
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.runs.events import Event
from clusterkit.runs.record import RunStore
from clusterkit.staging import remove

NAME = "smoke"
SCRIPT = "smoke_job.py"
# Starting Paddle takes most of it: seconds, or a minute where its files come over the network.
JOIN_S = 180.0
HANG_S = 120.0
_GRACE_S = 5.0
_CLEAN_S = 20.0


@dataclass(frozen=True)
class Smoke:
    """How it went. `seconds` is the slowest rank's best all-reduce; `reports` are by global rank."""

    findings: tuple[Finding, ...]
    world_size: int = 0
    seconds: float | None = None
    bus_bytes_per_s: float | None = None
    reports: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


def smoke(
    inventory: Path,
    members: Sequence[Settings],
    remotes: Mapping[str, Remote],
    interrupts: Interrupts,
    doing: Doing,
    forks: int = 64,
) -> Smoke:
    """Run it on all members and judge it; every failure is a finding. Raises Interrupted.

    No record of it is kept here, and its directories on the hosts are gone afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="clusterkit-smoke-") as folder:
        try:
            return _run(Path(folder), inventory, members, remotes, interrupts, doing, forks)
        except Interrupted:
            raise
        except FleetError as error:
            found = [
                Finding(NAME, "failed", host, "", f"{error.doing}: {each.message}", each.hint)
                for host, each in error.failures.items()
            ]
            return Smoke(tuple(found))
        except ClusterkitError as error:
            return Smoke((Finding(NAME, "failed", detail=error.message, hint=error.hint),))


def _run(
    folder: Path,
    inventory: Path,
    members: Sequence[Settings],
    remotes: Mapping[str, Remote],
    interrupts: Interrupts,
    doing: Doing,
    forks: int,
) -> Smoke:
    order = Order(
        inventory=inventory,
        members=tuple(members),
        script=SCRIPT,
        arguments=(f"{HANG_S:g}",),
        cwd=_project(folder),
        # Preflight has just checked all hosts, and shows what it found.
        check=False,
        timeouts=Timeouts(join=JOIN_S, grace=_GRACE_S),
    )
    listener = _Listener(doing)
    prepared = prepare(order, remotes, forks=forks, cancel=interrupts.cancel, tell=listener.take)
    store = RunStore(folder / "runs")
    try:
        status = launch(prepared, remotes, store, interrupts, Manner(forks=forks), listener.take)
    finally:
        _clean(prepared, store, remotes, forks)
    return judge(status, listener.reports, prepared.plan.topology.world_size)


def _project(folder: Path) -> Path:
    """A folder that holds the script alone."""
    project = folder / "clusterkit-smoke"
    project.mkdir()
    shutil.copyfile(smoke_job.__file__, project / SCRIPT)
    return project


class _Listener:
    """Takes the launch's events: what the ranks report, and what is being done."""

    def __init__(self, doing: Doing) -> None:
        self.reports: dict[int, Mapping[str, Any]] = {}
        self._doing = doing

    def take(self, event: Event) -> None:
        """Note it."""
        if event.kind == "progress":
            self._doing(f"smoke test: {event.data['doing']}", event.data.get("waiting", ()))
        elif event.kind == "line":
            mark, _, rest = event.data["bytes"].decode("utf-8", "replace").partition(" ")
            if mark == smoke_job.MARK:
                self.reports[int(event.data["rank"])] = json.loads(rest)


def judge(status: Mapping[str, Any], reports: Mapping[int, Mapping[str, Any]], world_size: int) -> Smoke:
    """The run's last status and what its ranks reported, as findings (pure)."""
    if status.get("exit_code") != 0:
        return Smoke((_failed(status),), world_size, reports=reports)
    silent = [rank for rank in range(world_size) if rank not in reports]
    if silent:
        text = f"ranks {', '.join(map(str, silent[:8]))} did not report, though the job ended well"
        return Smoke((Finding(NAME, "failed", detail=text),), world_size, reports=reports)
    small = {int(each["world_size"]) for each in reports.values()} - {world_size}
    wrong = sorted(rank for rank, each in reports.items() if not each["correct"])
    if small or wrong:
        text = f"the sum is wrong on ranks {', '.join(map(str, wrong[:8]))}"
        if small:
            text = f"the world has {min(small)} ranks, not {world_size}"
        return Smoke((Finding(NAME, "failed", detail=text),), world_size, reports=reports)
    slowest = max(reports.values(), key=lambda each: each["seconds"])
    rate = float(slowest["bus_bytes_per_s"])
    text = (
        f"all-reduce of {slowest['bytes'] >> 20} MiB over {world_size} ranks ({slowest['device']}): "
        f"{figures(slowest['seconds'] * 1000, 3)} ms, bus bandwidth {figures(rate / 1e9, 3)} GB/s, sums right"
    )
    found = Finding(NAME, "ok", detail=text)
    return Smoke((found,), world_size, float(slowest["seconds"]), rate, reports)


def _failed(status: Mapping[str, Any]) -> Finding:
    root = status.get("root") or {}
    lines = [line for line in root.get("lines") or () if str(line).strip()]
    why = str(status.get("reason") or f"exit code {status.get('exit_code')}")
    text = f"{why}: {lines[-1]}" if lines else why
    return Finding(NAME, "failed", str(root.get("host") or ""), "", text, "what fails here fails every job")


# --- afterwards ------------------------------------------------------------------------------------


def _clean(prepared: Prepared, store: RunStore, remotes: Mapping[str, Remote], forks: int) -> None:
    """Take everything away on the hosts: the run, the code, and folders that are empty without them."""
    for record in store.records():
        remove(record, remotes, forks)

    def one(node: NodePlan) -> None:
        remotes[node.alias].run(_removal(node), timeout=_CLEAN_S, doing="removing the smoke test's files")

    fan_out({node.alias: node for node in prepared.plan.nodes}, one, forks=forks)


def _removal(node: NodePlan) -> str:
    code, name = posixpath.split(node.workdir)
    beside = [posixpath.join(code, f".{name}{suffix}") for suffix in (".json", ".lock")]
    own, default = posixpath.dirname(code), posixpath.dirname(posixpath.dirname(code))
    empty = [code, posixpath.dirname(node.run_dir), own]
    # A `remote_dir` that somebody chose was perhaps made for us; it stays.
    empty += [default] if posixpath.basename(default) == ".clusterkit" else []
    return f"rm -rf -- {' '.join(map(shlex.quote, [node.workdir, *beside]))}\n" + (
        f"rmdir -- {' '.join(map(shlex.quote, empty))} 2>/dev/null\nexit 0\n"
    )
