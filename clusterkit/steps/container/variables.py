"""Variables that an image, or the client's own configuration, puts into every container."""

from __future__ import annotations

from collections.abc import Iterable

from clusterkit.facts import Facts
from clusterkit.planning.variables import is_proxy, override
from clusterkit.probes.container import CONTAINER, INSIDE
from clusterkit.steps.container.scope import absent, image_on, inside
from clusterkit.steps.engine import Change, Fleet, Severity, State, Step


class ImageVariables(Step):
    """Nothing in the image, or the client's configuration, overrides the launcher or catches its traffic.

    A launch takes such variables out. What tunes NCCL passes, and is told: nobody looks for it in an image.
    """

    name = "image variables"
    probes = (CONTAINER, INSIDE)

    def skip(self, host: str, fleet: Fleet) -> str:
        """The image has to be there."""
        return absent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """None."""
        return {"image": (), "client": ()}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Those of the image, and those that a container has besides; without what the inventory decides."""
        facts, decided = fleet.facts[host], fleet.members[host].env
        return {
            "image": tuple(name for name in _traps(_of_image(facts)) if name not in decided),
            "client": tuple(name for name in _traps(_besides(facts)) if name not in decided),
        }

    def severity(self, change: Change) -> Severity:
        """A launch can cope."""
        return "warning"

    def explain(self, change: Change) -> str:
        parts = [
            f"{who} {', '.join(_described(name) for name in names)}"
            for who, names in (
                ("the image sets", change.actual["image"]),
                (_client(change), change.actual["client"]),
            )
            if isinstance(names, tuple) and names
        ]
        return "; ".join(parts)

    def hint(self, change: Change) -> str:
        tuning = [name for name in _named(change) if not override(name) and not is_proxy(name)]
        if tuning:
            return (
                f"write env_{tuning[0]}=… in the inventory to decide it there, or build the image without it"
            )
        return "a launch leaves these out; build the image without them to be rid of them"


def _traps(names: Iterable[str]) -> list[str]:
    """NCCL_VERSION is what NVIDIA's base images are labelled with, and NCCL does not read it."""
    tuning = ("NCCL_", "GLOO_")
    return sorted(
        name
        for name in names
        if override(name) or is_proxy(name) or (name.startswith(tuning) and name != "NCCL_VERSION")
    )


def _of_image(facts: Facts) -> tuple[str, ...]:
    image = image_on(facts)
    return tuple(image.environment) if image else ()


def _besides(facts: Facts) -> list[str]:
    found = inside(facts)
    own = set(_of_image(facts))
    return [name for name in found.names if name not in own] if found else []


def _described(name: str) -> str:
    found = override(name)
    return f"{name} ({found.effect})" if found else name


def _client(change: Change) -> str:
    if change.settings.container_runtime == "podman":
        return "Podman (containers.conf, or the host's own environment) adds"
    return "Docker's client (proxies of ~/.docker/config.json) adds"


def _named(change: Change) -> list[str]:
    found = (change.actual["image"], change.actual["client"])
    return [name for names in found if isinstance(names, tuple) for name in names]
