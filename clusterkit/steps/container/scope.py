"""Which hosts train in containers, and how far each one got: runtime, image, a container that ran."""

from __future__ import annotations

import re
from shlex import join

from clusterkit.facts import Facts
from clusterkit.inventory.model import Settings
from clusterkit.probes.container import CONTAINER, INSIDE, Container, Image, Inside, Runtime
from clusterkit.steps.engine import Fleet

TITLES = {"docker": "Docker", "podman": "Podman"}


def bare(host: str, fleet: Fleet) -> str:
    """Why no container is looked at; "" if the host trains in one."""
    settings = fleet.members[host]
    return "" if settings.container_runtime != "none" and settings.image else "the inventory names no image"


def silent(host: str, fleet: Fleet) -> str:
    """As `bare`, and where the runtime does not answer, which is its own check's to tell."""
    title = TITLES.get(fleet.members[host].container_runtime, "")
    return bare(host, fleet) or ("" if runtime_on(fleet.facts[host]) else f"{title} does not answer")


def absent(host: str, fleet: Fleet) -> str:
    """As `silent`, and where the image is not there yet."""
    return silent(host, fleet) or ("" if image_on(fleet.facts[host]) else "the image is not there")


def not_started(host: str, fleet: Fleet) -> str:
    """As `absent`, and where no container of it started."""
    return absent(host, fleet) or ("" if inside(fleet.facts[host]) else "no container of the image starts")


def runtime_on(facts: Facts) -> Runtime | None:
    """The runtime that answers."""
    found = facts.get(CONTAINER)
    return found.runtime if found else None


def image_on(facts: Facts) -> Image | None:
    """The image that the inventory names, if the host has it."""
    found = facts.get(CONTAINER)
    return found.image if found else None


def container_on(facts: Facts) -> Container | None:
    """The container that was started to look inside; None where none was."""
    return facts.get(INSIDE)


def inside(facts: Facts) -> Inside | None:
    """What it saw."""
    found = container_on(facts)
    return found.inside if found else None


def image_name(settings: Settings) -> str:
    """The image as the inventory has it."""
    return settings.image or ""


def said(words: str) -> str:
    """The runtime's words without those that say who speaks."""
    return re.sub(r"^(docker: )?(Error(:| response from daemon:) )?", "", words)


def client(facts: Facts) -> str:
    """How the runtime is called in a shell."""
    found = runtime_on(facts)
    return join(found.command) if found else ""
