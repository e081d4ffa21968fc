"""The GPUs are free: nobody else's process, and no memory that nobody seems to hold."""

from __future__ import annotations

from clusterkit.probes import GPUS, RUNS
from clusterkit.probes.gpu_processes import GPU_PROCESSES, GpuProcess
from clusterkit.probes.gpu_report import GPU_REPORT
from clusterkit.steps.engine import LAUNCH, Change, Fleet, Severity, State, Status, Step
from clusterkit.steps.gpus.scope import indexes, named, silent, tuple_of, which

# Serves the processes of others, and holds no memory to speak of.
SERVERS = ("nvidia-cuda-mps-server",)


class GpuProcesses(Step):
    """No process computes on a GPU that the job wants: two that share one run out of memory."""

    name = "gpu processes"
    tags = frozenset({LAUNCH})
    probes = (GPUS, GPU_PROCESSES, RUNS)
    # What cannot be seen need not keep a job from starting.
    unknown: Status = "warning"

    def skip(self, host: str, fleet: Fleet) -> str:
        """A node on the CPU wants none."""
        node = fleet.node(host)
        return "this node computes on the CPU" if node and node.devices is None else silent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """None."""
        return {"pids": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Those that no run of ours accounts for: its own checks name these."""
        return {"pids": tuple(dict.fromkeys(str(process.pid) for process in _foreign(host, fleet)))}

    def explain(self, change: Change) -> str:
        found = _foreign(change.host, change.fleet)
        first, numbers = found[0], indexes(change.facts)
        gpus = sorted({numbers[process.uuid] for process in found if process.uuid in numbers})
        more = len({process.pid for process in found}) - 1
        others = f" and {more} more" if more else ""
        whose = f", {first.user}" if first.user else ""
        where = named(gpus) if gpus else "a GPU"
        return f"{where} in use by pid {first.pid} ({first.command[:60]}{whose}){others}"

    def hint(self, change: Change) -> str:
        pids = " ".join(tuple_of(change.actual["pids"])[:8])
        return f"wait for it, end it (kill {pids}), or choose other GPUs with `devices` in the inventory"


def _foreign(host: str, fleet: Fleet) -> list[GpuProcess]:
    facts, node = fleet.facts[host], fleet.node(host)
    numbers, runs = indexes(facts), facts.get(RUNS)
    left = {process.pid for process in runs.left_over} if runs else set()
    ours = {device for run in runs.live for device in run.devices or ()} if runs else set()
    wanted = set(node.devices or ()) if node else set(numbers.values())
    return [
        process
        for process in facts[GPU_PROCESSES]
        if numbers.get(process.uuid, min(wanted, default=0)) in wanted - ours
        and process.pid not in left
        and not process.command.rpartition("/")[2].startswith(SERVERS)
    ]


class HeldMemory(Step):
    """No GPU memory without a process: an orphan that the driver no longer lists may still hold it."""

    name = "held gpu memory"
    probes = (GPUS, GPU_PROCESSES, GPU_REPORT)
    unknown: Status = "warning"

    def skip(self, host: str, fleet: Fleet) -> str:
        """Nothing to judge without GPUs."""
        return silent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """None."""
        return {"gpus": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """GPUs with 1 GiB or more in use, and no process on them: a driver keeps some for itself."""
        facts, most = fleet.facts[host], fleet.members[host].threshold("gpu_held_mib")
        busy = {process.uuid for process in facts[GPU_PROCESSES]}
        return {
            "gpus": which(
                facts, lambda gpu: (gpu.memory_used or 0) >= most and gpu.uuid not in busy and not gpu.mig
            )
        }

    def severity(self, change: Change) -> Severity:
        """A desktop holds some too."""
        return "warning"

    def explain(self, change: Change) -> str:
        gpus = tuple_of(change.actual["gpus"])
        numbers = indexes(change.facts)
        used = next(
            gpu.memory_used for gpu in change.facts[GPU_REPORT] if str(numbers.get(gpu.uuid)) == gpus[0]
        )
        return f"{used} MiB are in use on GPU {gpus[0]}, but no process is listed there" + (
            f" (and on {named(gpus[1:])})" if gpus[1:] else ""
        )

    def hint(self, change: Change) -> str:
        return "as root: fuser -v /dev/nvidia* names what holds it; end that"
