"""The container runtime, the training image, and what a container of it has inside."""

from clusterkit.steps.container.gpus import GpuContainers, GpusSurviveReload
from clusterkit.steps.container.image import ImageArchitecture, ImagePresent, ImageSpace, SameImage
from clusterkit.steps.container.inside import (
    ContainerLimits,
    ContainerMemory,
    ContainerStarts,
    ImagePaddle,
    ImageRdma,
)
from clusterkit.steps.container.runtime import ContainerRuntime, LeftOverContainers
from clusterkit.steps.container.variables import ImageVariables

__all__ = [
    "ContainerLimits",
    "ContainerMemory",
    "ContainerRuntime",
    "ContainerStarts",
    "GpuContainers",
    "GpusSurviveReload",
    "ImageArchitecture",
    "ImagePaddle",
    "ImagePresent",
    "ImageRdma",
    "ImageSpace",
    "ImageVariables",
    "LeftOverContainers",
    "SameImage",
]
