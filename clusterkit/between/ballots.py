"""What is put to the vote: which facts, how they read, and what an odd host means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from clusterkit.facts import Facts, Probe
from clusterkit.probes import CONTAINER, GPUS, HOST, INSIDE, KERNEL, PYTHON
from clusterkit.probes.paddle import Paddle
from clusterkit.probes.storage import STORAGE
from clusterkit.steps.engine import Status
from clusterkit.steps.storage.options import comparable

T = TypeVar("T")
Read = Callable[[Facts], str | None]


@dataclass(frozen=True)
class Ballot:
    """One fact that should be equal everywhere. `read` gives None where the host has none to compare.

    `by_group`: it may differ between groups of the inventory. `status` is what an odd host means.
    """

    fact: str
    read: Read
    status: Status = "warning"
    by_group: bool = False
    hint: str = ""


def asked(facts: Facts, probe: Probe[T]) -> T | None:
    """The fact's value; None where it failed, or where nobody asked for it."""
    return facts.get(probe) if probe.name in facts.values else None


def _all_gpus(facts: Facts, attribute: str) -> str | None:
    gpus = asked(facts, GPUS)
    values = dict.fromkeys(str(getattr(gpu, attribute)) for gpu in gpus or ())
    return ", ".join(values) or None


def _driver(facts: Facts) -> str | None:
    return _all_gpus(facts, "driver")


def _gpu_model(facts: Facts) -> str | None:
    return _all_gpus(facts, "name")


def _gpu_memory(facts: Facts) -> str | None:
    values = _all_gpus(facts, "memory")
    return f"{values} MiB" if values and values != "None" else None


def _gpu_count(facts: Facts) -> str | None:
    gpus = asked(facts, GPUS)
    return None if gpus is None else str(len(gpus))


def _image(facts: Facts) -> str | None:
    container = asked(facts, CONTAINER)
    # As many digits as the runtimes themselves show.
    return container.image.called[: len("sha256:") + 12] if container and container.image else None


def _runtime(facts: Facts) -> str | None:
    container = asked(facts, CONTAINER)
    runtime = container.runtime if container else None
    return f"{runtime.kind} {runtime.version}" if runtime else None


def _in_job(facts: Facts) -> Any:
    """The interpreter that trains: inside the image where there is one, else the host's own."""
    if asked(facts, CONTAINER) is not None:
        container = asked(facts, INSIDE)
        return container.inside if container else None
    return asked(facts, PYTHON)


def _paddle_in_job(facts: Facts) -> Paddle | None:
    python = _in_job(facts)
    return python.paddle if python else None


def _paddle(facts: Facts) -> str | None:
    paddle = _paddle_in_job(facts)
    return f"{paddle.distribution} {paddle.version}" if paddle else None


def _cuda(facts: Facts) -> str | None:
    paddle = _paddle_in_job(facts)
    return paddle.cuda or None if paddle else None


def _nccl(facts: Facts) -> str | None:
    paddle = _paddle_in_job(facts)
    return paddle.nccl or None if paddle else None


def _python(facts: Facts) -> str | None:
    python = _in_job(facts)
    return ".".join(map(str, python.version)) if python else None


def _architecture(facts: Facts) -> str | None:
    host = asked(facts, HOST)
    return host.architecture or None if host else None


def _kernel(facts: Facts) -> str | None:
    host = asked(facts, HOST)
    return host.kernel or None if host else None


def _os(facts: Facts) -> str | None:
    host = asked(facts, HOST)
    return host.os or None if host else None


def _zone(facts: Facts) -> str | None:
    host = asked(facts, HOST)
    return host.zone or None if host else None


def _mounts(facts: Facts) -> str | None:
    """The declared mounts as they are; sizes and addresses are for each host to agree on with the server."""
    storage = asked(facts, STORAGE)
    shown = [
        f"{path} {mount.mounted.type} {','.join(comparable(mount.mounted.options))}"
        for path, mount in sorted(storage.mounts.items() if storage else ())
        if mount.mounted is not None
    ]
    return "; ".join(shown) or None


def _locked_memory(facts: Facts) -> str | None:
    kernel = asked(facts, KERNEL)
    if kernel is None:
        return None
    return "unlimited" if kernel.locked_memory is None else f"{kernel.locked_memory // 1024} KiB"


def _open_files(facts: Facts) -> str | None:
    kernel = asked(facts, KERNEL)
    if kernel is None:
        return None
    return "unlimited" if kernel.open_files is None else str(kernel.open_files)


# In the order of the report. Steps fail what a host alone is guilty of; here a difference is a warning, or a
# failure where mixed versions hang a job and no step says so. What is "ok" though odd is there to be read.
BALLOTS: tuple[Ballot, ...] = (
    Ballot("driver", _driver, hint="install one driver version everywhere"),
    Ballot("GPU model", _gpu_model, by_group=True, hint="the slowest GPU sets the pace of all"),
    Ballot("GPU memory", _gpu_memory, by_group=True, hint="the smallest GPU decides the batch size"),
    Ballot("GPU count", _gpu_count, by_group=True, hint="has one fallen off the bus? nvidia-smi -L"),
    Ballot("image", _image, hint="name the image by its digest, so that all pull the same"),
    Ballot("container runtime", _runtime, "ok"),
    Ballot("Paddle", _paddle, hint="install one version everywhere"),
    Ballot("CUDA", _cuda, "failed", hint="install the same build of Paddle everywhere"),
    Ballot("NCCL", _nccl, "failed", hint="install the same build of Paddle everywhere: mixed NCCL hangs"),
    Ballot("Python", _python, hint="point `python` at equal interpreters"),
    Ballot("architecture", _architecture, by_group=True, hint="one image cannot run on both"),
    Ballot("kernel", _kernel, "ok"),
    Ballot("operating system", _os, "ok"),
    Ballot("time zone", _zone, hint="timedatectl set-timezone Etc/UTC: logs then tell one time"),
    Ballot("mounts", _mounts, hint="declare the options (`nfs_options`, or `options` of `mounts`)"),
    Ballot("locked memory", _locked_memory, hint="set memlock alike in /etc/security/limits.conf"),
    Ballot("open files", _open_files, hint="set nofile alike in /etc/security/limits.conf"),
)

# Read off each node's own interface, which is not a fact of the host alone.
MTU = Ballot("MTU", lambda facts: None, hint="set one MTU on all nodes and switches")
