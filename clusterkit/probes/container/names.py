"""An image's name taken apart, by the rules of Docker's references."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

HUB = "docker.io"
# What preflight has pulled carries a second name in this repository, and nothing else does.
PULLED = "clusterkit/pulled"


@dataclass(frozen=True)
class Name:
    """`registry/path:tag@digest`; `registry` is never empty, `tag` and `digest` may be."""

    registry: str
    path: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def of(cls, text: str) -> Name:
        """The first part is a registry if it has a dot or a port, or is `localhost`; else Docker Hub is."""
        rest, _, digest = text.partition("@")
        first, slash, path = rest.partition("/")
        if not slash or not ("." in first or ":" in first or first == "localhost"):
            first, path = HUB, rest
        path, _, tag = path.partition(":")
        if first in ("index.docker.io", HUB):
            first, path = HUB, path if "/" in path else f"library/{path}"
        return cls(first, path, tag, digest)

    @property
    def repository(self) -> str:
        """Without tag and digest, the registry always named: equal for what means the same."""
        return f"{self.registry}/{self.path}"

    @property
    def full(self) -> str:
        """With everything that names it; `latest` where nothing was said."""
        if self.digest:
            return f"{self.repository}@{self.digest}"
        return f"{self.repository}:{self.tag or 'latest'}"


def pulled_tag(image: str) -> str:
    """The tag in the repository PULLED that says: preflight has brought the image of this name here."""
    return hashlib.sha256(Name.of(image).full.encode()).hexdigest()[:16]
