"""NVIDIA GPUs, as the driver's own tool lists them."""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.facts import NOT_FOUND, Output, Probe


@dataclass(frozen=True)
class Gpu:
    """One GPU; `index` is its number on the host, `memory` in MiB as nvidia-smi counts."""

    index: int
    uuid: str
    name: str
    memory: int | None
    driver: str


_SHELL = """
exec nvidia-smi --query-gpu=index,uuid,name,memory.total,driver_version --format=csv,noheader,nounits
"""


def _parse(output: Output) -> tuple[Gpu, ...]:
    """No nvidia-smi means no GPUs; one that fails means that we do not know."""
    if output.status == NOT_FOUND:
        return ()
    return tuple(_gpu(line) for line in output.stdout.splitlines() if line.strip())


def _gpu(line: str) -> Gpu:
    index, uuid, name, memory, driver = (word.strip() for word in line.split(","))
    return Gpu(int(index), uuid, name, int(memory) if memory.isdigit() else None, driver)


# Without the persistence daemon the driver is loaded for each call, seconds a GPU.
GPUS = Probe("gpus", _SHELL, _parse, timeout=20, accepts=(0, NOT_FOUND), about="nvidia-smi")
