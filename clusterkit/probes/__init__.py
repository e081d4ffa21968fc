"""What clusterkit asks a host, one file a topic. Add a probe: see docs/steps.md.

`LAUNCH` is what starting a job needs: pass it to `facts.gather`.
"""

from __future__ import annotations

from typing import Any

from clusterkit.facts import Probe
from clusterkit.probes.container import CONTAINER, INSIDE
from clusterkit.probes.disk import DISK
from clusterkit.probes.environment import ENVIRONMENT
from clusterkit.probes.gpu import GPUS
from clusterkit.probes.gpu_processes import GPU_PROCESSES
from clusterkit.probes.host import HOST
from clusterkit.probes.kernel import KERNEL
from clusterkit.probes.listening import LISTENING
from clusterkit.probes.name import NAME
from clusterkit.probes.network import NETWORK
from clusterkit.probes.python import PYTHON
from clusterkit.probes.rdma import RDMA, VERBS
from clusterkit.probes.runs import RUNS

LAUNCH: tuple[Probe[Any], ...] = (
    HOST,
    ENVIRONMENT,
    NETWORK,
    NAME,
    LISTENING,
    KERNEL,
    DISK,
    PYTHON,
    GPUS,
    GPU_PROCESSES,
    CONTAINER,
    INSIDE,
    RDMA,
    VERBS,
    RUNS,
)

__all__ = [
    "CONTAINER",
    "DISK",
    "ENVIRONMENT",
    "GPUS",
    "GPU_PROCESSES",
    "HOST",
    "INSIDE",
    "KERNEL",
    "LAUNCH",
    "LISTENING",
    "NAME",
    "NETWORK",
    "PYTHON",
    "RDMA",
    "RUNS",
    "VERBS",
]
