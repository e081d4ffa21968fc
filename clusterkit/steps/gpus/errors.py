"""The driver has reported no error since the boot that makes the host unfit."""

from __future__ import annotations

from clusterkit.facts import Facts
from clusterkit.probes import GPUS
from clusterkit.probes.gpu_errors import GPU_ERRORS, GpuError
from clusterkit.probes.gpu_report import GPU_REPORT
from clusterkit.steps.engine import Change, Fleet, Severity, State, Step
from clusterkit.steps.gpus.scope import indexes, not_expected
from clusterkit.tables import Xid

# "Look at what else was said": nothing new where something else was.
NEIGHBOUR = 45


class GpuErrors(Step):
    """No Xid since the boot that makes the host unfit; those of a program that died are a warning."""

    name = "gpu errors"
    probes = (GPUS, GPU_REPORT, GPU_ERRORS)

    def skip(self, host: str, fleet: Fleet) -> str:
        """The log is worth reading even where nvidia-smi has nothing to say."""
        return not_expected(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """None."""
        return {"failures": (), "warnings": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The errors of each kind. Raises ProbeFailed where neither the login nor root may read the log."""
        found = _judged(host, fleet)
        return {
            "failures": tuple(
                _named(error, fleet.facts[host]) for error, xid in found if xid.status == "failed"
            ),
            "warnings": tuple(
                _named(error, fleet.facts[host]) for error, xid in found if xid.status == "warning"
            ),
        }

    def severity(self, change: Change) -> Severity:
        """As the table says."""
        return "failed" if "failures" in change.keys else "warning"

    def explain(self, change: Change) -> str:
        error, _ = self._first(change)
        rest = sum(len(value) for value in change.actual.values() if isinstance(value, tuple)) - 1
        times = f", {error.count} times" if error.count > 1 else ""
        more = f" (and {rest} more)" if rest else ""
        return f"{_named(error, change.facts)}{times}: {error.text[:120] or 'no text'}{more}"

    def hint(self, change: Change) -> str:
        return self._first(change)[1].advice

    def _first(self, change: Change) -> tuple[GpuError, Xid]:
        wanted = self.severity(change)
        return next(pair for pair in _judged(change.host, change.fleet) if pair[1].status == wanted)


def _judged(host: str, fleet: Fleet) -> list[tuple[GpuError, Xid]]:
    facts = fleet.facts[host]
    found = [(error, _meaning(error, fleet)) for error in facts[GPU_ERRORS]]
    told = {error.bus for error, xid in found if error.code != NEIGHBOUR and xid.status != "ok"}
    return [(error, xid) for error, xid in found if error.code != NEIGHBOUR or error.bus not in told]


def _meaning(error: GpuError, fleet: Fleet) -> Xid:
    if error.switch:
        return fleet.tables.sxid(error.code, fatal=error.fatal)
    return fleet.tables.xid(error.code)


def _named(error: GpuError, facts: Facts) -> str:
    if error.switch:
        return f"SXid {error.code} on the NVSwitch at {error.bus}"
    numbers = indexes(facts)
    for gpu in facts.get(GPU_REPORT) or ():
        if gpu.bus == error.bus and gpu.uuid in numbers:
            return f"Xid {error.code} on GPU {numbers[gpu.uuid]}"
    return f"Xid {error.code} on the GPU at PCI {error.bus}"
