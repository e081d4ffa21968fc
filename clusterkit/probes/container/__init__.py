"""Docker or Podman of a host, the training image there, and what a container of it looks like from inside.

`facts[CONTAINER].runtime.command` calls the runtime, `.image` is what a launch runs, with its environment;
`facts[INSIDE].inside` has the interpreter, the Paddle, and what else is set.
"""

from clusterkit.probes.container.calling import RUN_LABEL
from clusterkit.probes.container.images import Image
from clusterkit.probes.container.inside import INSIDE, Container, Inside
from clusterkit.probes.container.names import Name, pulled_tag
from clusterkit.probes.container.runtime import (
    CONTAINER,
    ContainerFacts,
    LeftOver,
    Pulled,
    Runtime,
)

__all__ = [
    "CONTAINER",
    "INSIDE",
    "RUN_LABEL",
    "Container",
    "ContainerFacts",
    "Image",
    "Inside",
    "LeftOver",
    "Name",
    "Pulled",
    "Runtime",
    "pulled_tag",
]
