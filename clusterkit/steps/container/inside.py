"""What a container of the image has inside, started as a launch starts it."""

from __future__ import annotations

import re

from clusterkit.facts import TIMED_OUT
from clusterkit.probes.container import CONTAINER, INSIDE
from clusterkit.probes.rdma import RDMA
from clusterkit.steps.container.scope import (
    absent,
    client,
    container_on,
    image_name,
    inside,
    not_started,
    said,
)
from clusterkit.steps.engine import (
    LAUNCH,
    PLAN,
    AtLeast,
    Change,
    Fleet,
    Severity,
    State,
    Step,
    VersionAtLeast,
)
from clusterkit.steps.python import OLDEST_PADDLE, OLDEST_PYTHON

GIB = 1024**3
OPEN_FILES = 65536


class ContainerStarts(Step):
    """A container of the image starts, as the user and with the settings of a launch, and runs its Python."""

    name = "container starts"
    tags = frozenset({LAUNCH, PLAN})
    probes = (CONTAINER, INSIDE)

    def skip(self, host: str, fleet: Fleet) -> str:
        """The image has to be there."""
        return absent(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """It does."""
        return {"starts": True}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Whether its answer came."""
        facts = fleet.facts[host]
        failure = facts.failure(INSIDE)
        if failure and failure.status != TIMED_OUT:
            raise failure
        return {"starts": inside(facts) is not None}

    def explain(self, change: Change) -> str:
        found = container_on(change.facts)
        reason = said(found.failed) if found else f"no answer within {INSIDE.timeout} s"
        limit = _refused_limit(reason)
        if limit:
            reason = f"the kernel refuses it {_LIMITS[limit]} beyond the host's own limit (ulimit {limit})"
        return f"a container of {image_name(change.settings)} does not start: {reason}"

    def hint(self, change: Change) -> str:
        found = container_on(change.facts)
        limit = _refused_limit(said(found.failed)) if found else ""
        if limit:
            return _raise_limit(limit, change)
        if "none of these runs in the image" in self.explain(change):
            return (
                "write python=… with the path of Paddle's interpreter in the image, or another container_user"
            )
        shown = f"{client(change.facts)} run --rm --entrypoint sh {image_name(change.settings)} -c true"
        return f"try on {change.host}: {shown}"


# By the name that --ulimit has for it; Docker's runtime says the number (getrlimit(2)), Podman's the name.
_LIMITS = {"nofile": "open files", "memlock": "locked memory"}
_NUMBERS = {"7": "nofile", "8": "memlock"}
_REFUSED = re.compile(r"rlimit (?:type (\d+)|`?RLIMIT_(\w+)).*not permitted", re.IGNORECASE)


def _refused_limit(reason: str) -> str:
    """The limit that the kernel has refused to raise, as the runtime says; "" if it was something else."""
    found = _REFUSED.search(reason)
    name = (_NUMBERS.get(found[1] or "") or (found[2] or "").lower()) if found else ""
    return name if name in _LIMITS else ""


def _raise_limit(limit: str, change: Change) -> str:
    less = f"write a lower --ulimit={limit} into container_args, or none"
    if change.settings.container_runtime == "podman":
        return f"{less}; or raise the login's hard limit in /etc/security/limits.d/"
    return f"{less}; or raise it for the daemon (Limit{limit.upper()}= in docker.service), and restart it"


class ImagePaddle(Step):
    """A Paddle in the image that can be launched, built for GPUs where GPUs are planned."""

    name = "image paddle"
    tags = frozenset({LAUNCH})
    probes = (CONTAINER, INSIDE)

    def skip(self, host: str, fleet: Fleet) -> str:
        """A container has to start."""
        return not_started(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """As on a bare host."""
        node = fleet.node(host)
        build = {"gpu_build": True} if node and node.devices else {}
        return {"python": VersionAtLeast(OLDEST_PYTHON), "paddle": VersionAtLeast(OLDEST_PADDLE), **build}

    def actual(self, host: str, fleet: Fleet) -> State:
        """From the package's metadata: Paddle is not imported."""
        found, node = inside(fleet.facts[host]), fleet.node(host)
        paddle = found.paddle if found else None
        return {
            "python": ".".join(map(str, found.version)) if found else None,
            "paddle": paddle.version if paddle else None,
            **({"gpu_build": paddle.for_gpu if paddle else None} if node and node.devices else {}),
        }

    def explain(self, change: Change) -> str:
        image, version = image_name(change.settings), change.actual["paddle"]
        found = inside(change.facts)
        if "python" in change.keys:
            return (
                f"{image} has Python {change.actual['python']}, and {OLDEST_PYTHON} is the oldest that works"
            )
        if version is None:
            return f"{image} has no Paddle for {found.python if found else 'its python'}"
        if "paddle" in change.keys:
            return f"{image} has Paddle {version}, and {OLDEST_PADDLE} is the oldest that can be launched"
        return f"GPUs are to be used, but Paddle {version} of {image} was built without CUDA"

    def hint(self, change: Change) -> str:
        if change.actual["paddle"] is None:
            return "write python=… with the path of Paddle's interpreter in the image, or use another image"
        return "use another image: docker pull paddlepaddle/paddle:… has them for each CUDA"


class ContainerMemory(Step):
    """1 GiB of /dev/shm inside for each rank: the runtimes' own default is 64 MB."""

    name = "container shared memory"
    tags = frozenset({LAUNCH})
    probes = (CONTAINER, INSIDE)

    def skip(self, host: str, fleet: Fleet) -> str:
        """A container has to start."""
        return not_started(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """1 GiB a rank."""
        node = fleet.node(host)
        return {"size_gib": AtLeast(float(len(node.ranks)) if node else 1.0)}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The size of what is mounted in the container."""
        found = inside(fleet.facts[host])
        size = found.shm if found else None
        return {"size_gib": None if size is None else round(size / GIB, 2)}

    def severity(self, change: Change) -> Severity:
        """Data loaders die of SIGBUS in 64 MB; less than a GiB a rank is a risk."""
        size = change.actual["size_gib"]
        return "warning" if isinstance(size, float) and size > 0.1 else "failed"

    def explain(self, change: Change) -> str:
        size, wanted = change.actual["size_gib"], change.desired["size_gib"]
        if size is None:
            return "there is no /dev/shm in the container"
        return f"/dev/shm in the container has {size} GiB; data loaders want {wanted}"

    def hint(self, change: Change) -> str:
        return "write a larger shm_size in the inventory, such as shm_size=16g"


class ContainerLimits(Step):
    """Enough open files inside, and locked memory without a limit where RDMA cards are used."""

    name = "container limits"
    probes = (CONTAINER, INSIDE, RDMA)

    def skip(self, host: str, fleet: Fleet) -> str:
        """A container has to start."""
        return not_started(host, fleet)

    def desired(self, host: str, fleet: Fleet) -> State:
        """What NCCL and data loaders on many ranks need."""
        locked = {"locked_memory": None} if fleet.facts[host][RDMA] else {}
        return {"open_files": AtLeast(OPEN_FILES), **locked}

    def actual(self, host: str, fleet: Fleet) -> State:
        """The soft limits of a program in the container; no limit counts as a large one."""
        found = inside(fleet.facts[host])
        files = found.open_files if found else 0
        locked = {"locked_memory": found.locked_memory if found else 0} if fleet.facts[host][RDMA] else {}
        return {"open_files": 2**20 if files is None else files, **locked}

    def severity(self, change: Change) -> Severity:
        """Small jobs do not notice; RDMA without locked memory does not start."""
        return "failed" if "locked_memory" in change.keys else "warning"

    def explain(self, change: Change) -> str:
        parts = []
        if "open_files" in change.keys:
            parts.append(f"{change.actual['open_files']} open files, {OPEN_FILES} are wanted")
        if "locked_memory" in change.keys:
            parts.append(f"{change.actual['locked_memory']} bytes of locked memory, RDMA wants no limit")
        return f"a container may have {' and '.join(parts)}"

    def hint(self, change: Change) -> str:
        if "locked_memory" in change.keys:
            return "raise it for the daemon (LimitMEMLOCK=infinity in docker.service), and restart it"
        return f"write container_args=--ulimit=nofile={OPEN_FILES}:{OPEN_FILES} in the inventory"


class ImageRdma(Step):
    """Where there are RDMA cards, the image has the library that uses them."""

    name = "image rdma"
    probes = (CONTAINER, INSIDE, RDMA)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Nothing to use, nothing to miss."""
        return not_started(host, fleet) or ("" if fleet.facts[host][RDMA] else "no RDMA card")

    def desired(self, host: str, fleet: Fleet) -> State:
        """There."""
        return {"libibverbs.so.1": True}

    def actual(self, host: str, fleet: Fleet) -> State:
        """Whether it can be loaded."""
        found = inside(fleet.facts[host])
        return {"libibverbs.so.1": found.ibverbs if found else None}

    def severity(self, change: Change) -> Severity:
        """NCCL goes on over TCP, several times slower."""
        return "warning"

    def explain(self, change: Change) -> str:
        cards: tuple[str, ...] = change.facts[RDMA]
        return f"the image has no libibverbs.so.1: NCCL will not use {', '.join(cards)}, but TCP"

    def hint(self, change: Change) -> str:
        return "build the image with rdma-core (Debian, Ubuntu: libibverbs1, ibverbs-providers)"
