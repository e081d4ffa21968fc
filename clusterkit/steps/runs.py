"""Nothing of another run is in the way."""

from __future__ import annotations

from clusterkit.probes import RUNS
from clusterkit.probes.runs import LiveRun
from clusterkit.steps.engine import LAUNCH, Change, Fleet, Severity, State, Step


class LeftOverProcesses(Step):
    """No process of a run that is over: it would hold GPU memory, ports and files."""

    name = "left-over processes"
    tags = frozenset({LAUNCH})
    probes = (RUNS,)

    def desired(self, host: str, fleet: Fleet) -> State:
        """None."""
        return {"runs": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The runs that they belong to."""
        return {"runs": tuple(dict.fromkeys(left.run_id for left in fleet.facts[host][RUNS].left_over))}

    def explain(self, change: Change) -> str:
        left = change.facts[RUNS].left_over
        count = f"{len(left)} processes" if len(left) > 1 else "a process"
        return f"{count} of run {left[0].run_id}, which is over: pid {left[0].pid}, {left[0].command[:60]}"

    def hint(self, change: Change) -> str:
        return f"clusterkit stop {change.facts[RUNS].left_over[0].run_id}"


class OtherRuns(Step):
    """No run that is alive uses the GPUs that this one wants; one that shares the CPUs is a warning."""

    name = "other runs"
    tags = frozenset({LAUNCH})
    probes = (RUNS,)

    def desired(self, host: str, fleet: Fleet) -> State:
        """None."""
        return {"runs": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The runs that use the same GPUs, or the same CPUs, or do not say what they use."""
        return {"runs": tuple(dict.fromkeys(run.run_id for run in _rivals(host, fleet)))}

    def severity(self, change: Change) -> Severity:
        """Two runs on one GPU run out of memory; on CPUs they are only slow."""
        return "failed" if _fighting(change) else "warning"

    def explain(self, change: Change) -> str:
        run = (_fighting(change) or _rivals(change.host, change.fleet))[0]
        if run.devices:
            return f"{_named(run)} is alive here and uses GPU {','.join(map(str, sorted(run.devices)))}"
        if run.devices is None and _wanted(change.host, change.fleet):
            return f"{_named(run)} is alive here, and which GPUs it uses cannot be seen"
        return f"{_named(run)} is alive here and shares the CPUs"

    def hint(self, change: Change) -> str:
        run = (_fighting(change) or _rivals(change.host, change.fleet))[0]
        elsewhere = ", or choose others with --devices" if _wanted(change.host, change.fleet) else ""
        return f"wait for it (--lock-wait SECONDS), or clusterkit stop {run.run_id}{elsewhere}"


def _named(run: LiveRun) -> str:
    """The run, whose it is, and since when."""
    owner = f" of {run.owner}" if run.owner else ""
    age = "" if run.age_s is None else f", started {_span(run.age_s)} ago,"
    return f"run {run.run_id}{owner}{age}"


def _span(seconds: float) -> str:
    if seconds < 7200:
        return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
    return f"{seconds / 3600:.0f} h"


def _wanted(host: str, fleet: Fleet) -> frozenset[int]:
    node = fleet.node(host)
    return frozenset(node.devices or ()) if node else frozenset()


def _rivals(host: str, fleet: Fleet) -> list[LiveRun]:
    """Runs in the way; one on other GPUs, or on none while we want some, is not."""
    wanted = _wanted(host, fleet)
    return [
        run
        for run in fleet.facts[host][RUNS].live
        if run.devices is None or wanted & run.devices or not (wanted or run.devices)
    ]


def _fighting(change: Change) -> list[LiveRun]:
    wanted = _wanted(change.host, change.fleet)
    return [run for run in _rivals(change.host, change.fleet) if wanted & (run.devices or frozenset())]
