"""GPUs reach a container, and stay there."""

from __future__ import annotations

from clusterkit.probes import GPUS
from clusterkit.probes.container import CONTAINER, INSIDE
from clusterkit.steps.container.scope import container_on, inside, runtime_on, said, silent
from clusterkit.steps.engine import LAUNCH, Change, Fleet, Severity, State, Step
from clusterkit.steps.gpus.scope import gpus
from clusterkit.steps.gpus.scope import silent as without_gpus


class GpuContainers(Step):
    """NVIDIA's runtime is there, and a container sees every GPU of the host."""

    name = "gpus in containers"
    tags = frozenset({LAUNCH})
    probes = (CONTAINER, INSIDE, GPUS)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Both are needed: a runtime that answers, and GPUs."""
        return silent(host, fleet) or without_gpus(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """As many as nvidia-smi lists, and the driver's library; that is seen once the image is there."""
        facts = fleet.facts[host]
        seen = {"gpus": len(gpus(facts)), "libcuda": True} if inside(facts) else {}
        return {"nvidia_runtime": True, **seen}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What the runtime says of itself, and what the container saw."""
        facts = fleet.facts[host]
        runtime, seen = runtime_on(facts), inside(facts)
        return {
            "nvidia_runtime": bool(runtime and runtime.nvidia),
            **({"gpus": seen.gpus, "libcuda": seen.libcuda} if seen else {}),
        }

    def explain(self, change: Change) -> str:
        runtime, container = runtime_on(change.facts), container_on(change.facts)
        if "nvidia_runtime" in change.keys:
            snap = runtime is not None and runtime.root.startswith("/var/snap/")
            return f"{'Docker from a snap' if snap else 'the container runtime'} has no NVIDIA runtime"
        if container and container.refused:
            return f"a container with GPUs does not start: {said(container.refused)}"
        if "gpus" in change.keys:
            return f"a container sees {change.actual['gpus']} GPUs, the host has {change.desired['gpus']}"
        return "a container sees the GPUs, but not the driver's libcuda.so.1"

    def hint(self, change: Change) -> str:
        kind = change.settings.container_runtime
        container = container_on(change.facts)
        if "gpus" in change.keys and not (container and container.refused):
            return f"restart {kind}, or make its CDI files anew: it was set up when fewer GPUs were there"
        if "nvidia_runtime" in change.keys or "gpus" in change.keys:
            if kind == "podman":
                generate = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
                return f"install nvidia-container-toolkit; as root: {generate}"
            return (
                "install nvidia-container-toolkit; as root: nvidia-ctk runtime configure, then restart docker"
            )
        return "the image's NVIDIA_DRIVER_CAPABILITIES must have `compute` (and `utility`), or be `all`"


class GpusSurviveReload(Step):
    """`systemctl daemon-reload` does not take the GPUs from running containers.

    With systemd's control groups it applies its own device rules anew, and these know the GPUs only by links
    in /dev/char ("Failed to initialize NVML: Unknown Error"; NVIDIA/nvidia-container-toolkit#48).
    """

    name = "gpus after daemon-reload"
    probes = (CONTAINER, GPUS)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Only where systemd manages the containers' control groups."""
        reason = silent(host, fleet) or without_gpus(host, fleet)
        runtime = runtime_on(fleet.facts[host])
        managed = runtime is not None and runtime.cgroup_driver == "systemd" and runtime.kind == "docker"
        return reason or ("" if managed else "systemd does not manage the containers' control groups")

    def desired(self, host: str, fleet: Fleet) -> State:
        """Links."""
        return {"device_links": True}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Whether /dev/char has any to NVIDIA's devices."""
        runtime = runtime_on(fleet.facts[host])
        return {"device_links": runtime.device_links if runtime else None}

    def severity(self, change: Change) -> Severity:
        """It works until somebody reloads."""
        return "warning"

    def explain(self, change: Change) -> str:
        return (
            "a `systemctl daemon-reload` would take the GPUs from running containers: /dev/char has no links"
        )

    def hint(self, change: Change) -> str:
        return "as root, and at each boot: nvidia-ctk system create-dev-char-symlinks --create-all"
