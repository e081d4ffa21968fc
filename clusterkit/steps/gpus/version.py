"""The driver is new enough for the CUDA that the job brings along, and that CUDA knows the GPUs."""

from __future__ import annotations

import re

from clusterkit.probes import GPUS, PYTHON
from clusterkit.probes.container import INSIDE
from clusterkit.probes.gpu_report import GPU_REPORT
from clusterkit.steps.engine import (
    LAUNCH,
    Change,
    Fleet,
    Severity,
    State,
    Step,
    VersionAtLeast,
    version_key,
)
from clusterkit.steps.gpus.scope import named, silent, tuple_of, which


def cuda_of(host: str, fleet: Fleet) -> tuple[str, str]:
    """The CUDA version that the job is built for, and who says so; "" where nobody does.

    An image is asked by its Paddle once it is there, and before it is pulled by its tag: Paddle's own have
    `-cuda12.6-` in it.
    """
    settings = fleet.members[host]
    if settings.container_runtime != "none":
        container = fleet.facts[host].get(INSIDE)
        paddle = container.inside.paddle if container and container.inside else None
        if paddle and paddle.cuda:
            return paddle.cuda, "the image"
        found = re.search(r"cuda(\d+\.\d+)", settings.image or "")
        return (found[1], "the image") if found else ("", "")
    python = fleet.facts[host].get(PYTHON)
    cuda = python.paddle.cuda if python and python.paddle else ""
    return cuda, "the installed Paddle" if cuda else ""


def _oldest(host: str, fleet: Fleet) -> str | None:
    """The driver below which nothing runs: what the inventory says, else what CUDA needs."""
    cuda, _ = cuda_of(host, fleet)
    return fleet.members[host].driver_min or (fleet.tables.drivers.oldest(cuda) if cuda else None)


def _full(host: str, fleet: Fleet) -> str | None:
    """The driver with which everything works; where the inventory names one, that is enough."""
    cuda, _ = cuda_of(host, fleet)
    settings = fleet.members[host]
    return (
        settings.driver_min or (fleet.tables.drivers.toolkit(cuda) if cuda else None) or _oldest(host, fleet)
    )


class DriverVersion(Step):
    """At least the driver that came with the job's CUDA; an older one for its major version is a warning."""

    name = "driver version"
    tags = frozenset({LAUNCH})
    # Without an interpreter there is still `driver_min`, or the image's tag.
    probes = (GPUS, PYTHON, INSIDE)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Something has to say which CUDA it is."""
        reason = silent(host, fleet)
        return reason or (
            "" if _full(host, fleet) else "neither driver_min nor the job's CUDA version is known"
        )

    def desired(self, host: str, fleet: Fleet) -> State:
        """`driver_min`, else the toolkit's own driver."""
        return {"driver": VersionAtLeast(_full(host, fleet) or "")}

    def actual(self, host: str, fleet: Fleet) -> State:
        """As the driver says it."""
        return {"driver": fleet.facts[host][GPUS][0].driver}

    def severity(self, change: Change) -> Severity:
        """Within a major version of CUDA an older driver runs most of it."""
        oldest = version_key(_oldest(change.host, change.fleet) or "")
        return "failed" if version_key(str(change.actual["driver"])) < oldest else "warning"

    def explain(self, change: Change) -> str:
        driver = change.actual["driver"]
        if change.settings.driver_min:
            return f"driver {driver} is older than driver_min {change.settings.driver_min}"
        cuda, source = cuda_of(change.host, change.fleet)
        if self.severity(change) == "failed":
            oldest = _oldest(change.host, change.fleet)
            return f"driver {driver} is too old for CUDA {cuda} of {source}, which needs {oldest} or newer"
        return (
            f"driver {driver} is older than that of CUDA {cuda} ({source}): only minor-version compatibility"
        )

    def hint(self, change: Change) -> str:
        wanted = _full(change.host, change.fleet)
        if change.settings.driver_min:
            return f"install driver {wanted} or newer, or lower driver_min in the inventory"
        if self.severity(change) == "failed":
            return f"install driver {wanted} or newer, or use a build for an older CUDA"
        return (
            f"driver {wanted} or newer has all of it; driver_min in the inventory says what is enough for you"
        )


class GpuArchitecture(Step):
    """The job's CUDA still runs on these GPUs: CUDA 13 does not know a V100."""

    name = "gpu architecture"
    probes = (GPUS, PYTHON, INSIDE, GPU_REPORT)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Something has to say which CUDA it is."""
        return silent(host, fleet) or (
            "" if cuda_of(host, fleet)[0] else "the job's CUDA version is not known"
        )

    def desired(self, host: str, fleet: Fleet) -> State:
        """None that is too old."""
        return {"too_old": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The GPUs that this CUDA has dropped."""
        cuda, _ = cuda_of(host, fleet)
        drivers = fleet.tables.drivers
        return {"too_old": which(fleet.facts[host], lambda gpu: not drivers.runs_on(cuda, gpu.architecture))}

    def explain(self, change: Change) -> str:
        old = set(tuple_of(change.actual["too_old"]))
        first = next(gpu for gpu in change.facts[GPUS] if str(gpu.index) in old)
        cuda, source = cuda_of(change.host, change.fleet)
        return f"CUDA {cuda} of {source} does not run on {named(sorted(old))} ({first.name})"

    def hint(self, change: Change) -> str:
        return "use a Paddle that is built for CUDA 12"
