"""What `image inspect` says, of Docker and of Podman."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterkit.probes.container.names import Name


@dataclass(frozen=True)
class Image:
    """An image on a host. Sizes in bytes, unpacked.

    `id` and `digest` are `sha256:…`: `id` is of the image's own description, `digest` that under which its
    registry has it ("" where it never was in one). `environment` may hold secrets: `repr()` hides it.
    """

    id: str
    digest: str
    names: tuple[str, ...]
    architecture: str
    size: int
    user: str
    environment: Mapping[str, str] = field(repr=False)

    @property
    def called(self) -> str:
        """What tells it from other images: the registry's digest if there is one."""
        return self.digest or self.id


def image_of(said: Mapping[str, Any], wanted: str) -> Image:
    """The image that was asked for by the name `wanted`."""
    own = Name.of(wanted)
    known = [Name.of(text) for text in said.get("RepoDigests") or ()]
    ours = [name.digest for name in known if name.repository == own.repository]
    digest = own.digest if own.digest in ours else next(iter(ours), "")
    config = said.get("Config") or {}
    pairs = (entry.partition("=") for entry in config.get("Env") or ())
    return Image(
        id=_sha256(said["Id"]),
        digest=digest,
        names=(*(said.get("RepoTags") or ()), *(said.get("RepoDigests") or ())),
        architecture=str(said.get("Architecture", "")),
        size=int(said.get("Size") or 0),
        user=str(config.get("User") or said.get("User") or ""),
        environment={name: value for name, _, value in pairs},
    )


def _sha256(identity: str) -> str:
    """Podman leaves the kind of hash out."""
    return identity if ":" in identity else f"sha256:{identity}"
