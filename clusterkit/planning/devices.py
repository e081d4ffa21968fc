"""Which GPUs of a host a run uses, and so how many ranks it has there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterkit.errors import NodeError, TopologyError
from clusterkit.facts import Facts
from clusterkit.inventory.model import Settings
from clusterkit.probes import CONTAINER, GPUS, HOST, INSIDE, PYTHON
from clusterkit.probes.paddle import Paddle


@dataclass(frozen=True)
class Share:
    """One node's ranks, one a device; `devices` is None where they compute on the CPU."""

    ranks: int
    devices: tuple[int, ...] | None
    note: str = ""


def choose(settings: Settings, facts: Facts, nproc: int | None, devices: tuple[int, ...] | None) -> Share:
    """The host's share; `nproc` and `devices` are the command line's, and win over the inventory's.

    Raises TopologyError where there is nothing to run on, or where the numbers do not fit the host.
    """
    alias = settings.alias
    listed = devices if devices is not None else settings.devices
    # A list on the command line says how many ranks there are, whatever the inventory counts.
    count = nproc if nproc is not None or devices is not None else settings.nproc_per_node
    if count is not None and count < 1:
        raise NodeError(alias, f"{alias}: nproc_per_node={count} starts nothing", "write 1 or more")
    if listed is None and count is not None and _without_gpus(facts):
        return Share(count, None, _idle_gpus(alias, facts))
    return _on_gpus(alias, facts, listed, count, nproc is not None)


def _on_gpus(
    alias: str, facts: Facts, listed: tuple[int, ...] | None, count: int | None, count_wins: bool
) -> Share:
    found = _found(alias, facts)
    if not found and listed is None:
        raise NodeError(
            alias,
            f"{alias} has no GPU (there is no nvidia-smi) and nproc_per_node is not set",
            "write nproc_per_node=2 in the inventory, or --nproc-per-node 2, to train on its CPU",
        )
    chosen = found if listed is None else _checked(alias, listed, found)
    if count is None or count == len(chosen):
        return Share(len(chosen), chosen)
    if count > len(chosen):
        raise NodeError(
            alias,
            f"{alias}: nproc_per_node={count}, but it has only {_counted(chosen)} to use",
            "each rank needs a GPU of its own: lower nproc_per_node, or list more devices",
        )
    if listed is not None and not count_wins:
        raise NodeError(
            alias,
            f"{alias}: devices lists {_counted(chosen)}, but nproc_per_node={count}",
            "write one of the two",
        )
    return Share(count, chosen[:count])


def _found(alias: str, facts: Facts) -> tuple[int, ...]:
    failed = facts.failure(GPUS)
    if failed:
        raise NodeError(
            alias,
            f"{alias}: its GPUs could not be listed: {failed.message}",
            f"run nvidia-smi on {alias}; after a driver update the machine needs a reboot",
        )
    return tuple(gpu.index for gpu in facts[GPUS])


def _without_gpus(facts: Facts) -> bool:
    """True if ranks can only compute on the CPU there: no GPU, or a Paddle that was built without."""
    paddle = paddle_on(facts)
    return (paddle is not None and not paddle.for_gpu) or facts.get(GPUS) == ()


def paddle_on(facts: Facts) -> Paddle | None:
    """The Paddle that a job there would use: the image's where it runs in a container."""
    if facts.get(CONTAINER) is not None:
        container = facts.get(INSIDE)
        return container.inside.paddle if container and container.inside else None
    python = facts.get(PYTHON)
    return python.paddle if python else None


def _idle_gpus(alias: str, facts: Facts) -> str:
    gpus = facts.get(GPUS)
    if not gpus:
        return ""
    return f"{alias}: its {_counted(gpus)} stay idle, the Paddle installed there was built without CUDA"


def _checked(alias: str, listed: tuple[int, ...], found: tuple[int, ...]) -> tuple[int, ...]:
    if not listed:
        raise NodeError(alias, f"{alias}: devices is an empty list", "write devices=all, or 0,1,2,3")
    twice = sorted({device for device in listed if listed.count(device) > 1})
    if twice:
        raise NodeError(alias, f"{alias}: devices lists {twice[0]} twice", "each rank needs a GPU of its own")
    missing = [device for device in listed if device not in found]
    if missing:
        there = f"GPUs {','.join(map(str, found))}" if found else "no GPU (there is no nvidia-smi)"
        raise NodeError(
            alias,
            f"{alias}: devices asks for GPU {','.join(map(str, missing))}, but the host has {there}",
            "correct devices, or write nproc_per_node to train on the CPU"
            if not found
            else "correct devices",
        )
    return listed


def _counted(things: Sequence[object]) -> str:
    return f"{len(things)} GPU{'s'[: len(things) != 1]}"


def refuse_sharing(members: Sequence[Settings], facts: Mapping[str, Facts], shares: Sequence[Share]) -> None:
    """Raise TopologyError if two local nodes, which are this one machine, would use one GPU."""
    owners: dict[tuple[str, int], str] = {}
    for settings, share in zip(members, shares, strict=True):
        if settings.connection != "local":
            continue
        for device in share.devices or ():
            owner = owners.setdefault((facts[settings.alias][HOST].boot_id, device), settings.alias)
            if owner != settings.alias:
                raise TopologyError(
                    f"{owner} and {settings.alias} are one machine, and both would use GPU {device}",
                    "give each its own, such as devices=0,1 and devices=2,3",
                )
