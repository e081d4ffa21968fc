"""Whether all hosts have one image under one name, and which one most have (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from clusterkit.probes.container import Image, Name
from clusterkit.steps.container.scope import image_name, image_on
from clusterkit.steps.engine import Fleet


@dataclass(frozen=True)
class Standing:
    """The images that hosts have under one name.

    `own`: host → what its image is called by. `most` is what more hosts have than any other, None for a tie.
    `pullable` are those that a registry has under this name. `size` is the largest, in bytes, 0 if unknown.
    """

    own: Mapping[str, str]
    most: str | None
    pullable: frozenset[str]
    size: int


def standing(host: str, fleet: Fleet) -> Standing:
    """How the hosts stand to the image that this host is to run."""
    found = fleet.once(_standings).get(_key(host, fleet))
    return found or Standing({}, None, frozenset(), 0)


def _standings(fleet: Fleet) -> Mapping[str, Standing]:
    by_name: dict[str, dict[str, Image]] = {}
    for host, facts in fleet.facts.items():
        image = image_on(facts)
        if image is not None:
            by_name.setdefault(_key(host, fleet), {})[host] = image
    return {name: _counted(images) for name, images in by_name.items()}


def _key(host: str, fleet: Fleet) -> str:
    name = image_name(fleet.members[host])
    return Name.of(name).full if name else ""


def _counted(images: Mapping[str, Image]) -> Standing:
    """An image that was loaded from a file has no digest, and is the same if its id is."""
    digests = {image.id: image.digest for image in images.values() if image.digest}
    own = {host: image.digest or digests.get(image.id, image.id) for host, image in images.items()}
    return Standing(
        own,
        _most(own),
        frozenset(digests.values()),
        max(image.size for image in images.values()),
    )


def _most(own: Mapping[str, str]) -> str | None:
    counted = Counter(own.values()).most_common(2)
    tie = len(counted) == 2 and counted[0][1] == counted[1][1]
    return None if tie else counted[0][0]


def short(digest: str) -> str:
    """As Docker shows it: the first 12 digits."""
    return digest.partition(":")[2][:12] or digest
