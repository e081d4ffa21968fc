"""What must hold of the GPUs and their driver, where the inventory is about GPUs at all."""

from clusterkit.steps.gpus.busy import GpuProcesses, HeldMemory
from clusterkit.steps.gpus.driver import GpuDriver
from clusterkit.steps.gpus.errors import GpuErrors
from clusterkit.steps.gpus.health import GpuMemory, GpuModes, PersistenceMode
from clusterkit.steps.gpus.links import FabricManager, NvLink
from clusterkit.steps.gpus.models import GpuCount, GpuModel
from clusterkit.steps.gpus.version import DriverVersion, GpuArchitecture

__all__ = [
    "DriverVersion",
    "FabricManager",
    "GpuArchitecture",
    "GpuCount",
    "GpuDriver",
    "GpuErrors",
    "GpuMemory",
    "GpuModel",
    "GpuModes",
    "GpuProcesses",
    "HeldMemory",
    "NvLink",
    "PersistenceMode",
]
