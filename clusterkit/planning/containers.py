"""A node's container: the exact `docker run` or `podman run`, from what the host was seen to have. Pure.

What runs inside is the agent's `enter`, which waits for the start and then runs node.sh: the launcher's
environment stands there, not in the container's own configuration, which everybody who may ask the runtime
can read. Directories have the same path inside as outside, so every path in the plan holds in both places.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from clusterkit.errors import HostError, InputError
from clusterkit.facts import Facts
from clusterkit.inventory.model import Settings
from clusterkit.planning import places
from clusterkit.planning.topology import Node
from clusterkit.planning.variables import is_proxy, override
from clusterkit.probes import CONTAINER, HOST, INSIDE, RDMA, VERBS
from clusterkit.probes.container import RUN_LABEL, Image, Inside, Name, Runtime
from clusterkit.probes.host import HostFacts

NODE_LABEL = "clusterkit.node_rank"
SCRIPT = "container.sh"
PASSWD = "passwd"
# What NVIDIA recommends for its images: deep recursion in operators takes more than the usual 8 MiB.
STACK_BYTES = 64 << 20
# `docker stop` by hand: the job's own grace, and a little for the supervisor to do it properly.
STOP_MARGIN_S = 5

_CLIENT = (
    *(
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "LANG",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    ),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
    *("CONTAINER_HOST", "CONTAINERS_CONF", "DBUS_SESSION_BUS_ADDRESS"),
)


@dataclass(frozen=True)
class Ground:
    """What a host has for a container of its image."""

    runtime: Runtime
    image: Image
    inside: Inside
    host: HostFacts
    cards: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Directories:
    """Absolute directories of the host that the container needs, each at the same path inside."""

    run: str
    records: str
    work: str
    home: str
    checkpoints: str


@dataclass(frozen=True)
class Container:
    """A node's container. `command` starts it, `python` is the interpreter inside, `unset` are the variables
    of the image and of the client that must not reach the job. `home` is "" where the image's own is used,
    `checkpoints` where they lie in a directory that is there inside anyway."""

    kind: str
    runtime: tuple[str, ...]
    image: str
    name: str
    python: str
    command: tuple[str, ...] = field(repr=False)
    unset: tuple[str, ...]
    home: str
    checkpoints: str
    sources: tuple[str, ...]
    files: Mapping[str, str] = field(repr=False)

    def description(self) -> dict[str, object]:
        """`container` of plan.json (docs/architecture.md)."""
        return {
            "runtime": list(self.runtime),
            "name": self.name,
            "home": self.home or None,
            "checkpoints": self.checkpoints or None,
            "sources": list(self.sources),
            "unset": list(self.unset),
        }


def client_environment() -> tuple[str, ...]:
    """Names that pass from the login environment to the runtime's client, and no further."""
    return _CLIENT


def ground(settings: Settings, facts: Facts) -> Ground | None:
    """What the host has, None for a bare one. Raises HostError where a container cannot be had."""
    if settings.container_runtime == "none" or not settings.image:
        return None
    found, container = facts.get(CONTAINER), facts.get(INSIDE)
    runtime, image = (found.runtime, found.image) if found else (None, None)
    inside = container.inside if container else None
    if runtime is None:
        raise HostError(
            settings.alias, f"{settings.container_runtime} does not answer", "run clusterkit preflight"
        )
    if image is None:
        raise HostError(settings.alias, f"{settings.image} is not on this host", "run clusterkit preflight")
    if inside is None:
        words = container.failed if container else "no answer"
        raise HostError(
            settings.alias,
            f"a container of {settings.image} does not start: {words}",
            "run clusterkit preflight",
        )
    return Ground(runtime, image, inside, facts[HOST], facts.get(RDMA) or (), facts.get(VERBS) or ())


def traps(ground: Ground) -> dict[str, str]:
    """Variables of the image, or that the client adds, which override the launcher or are proxies.

    A value that is not known is "".
    """
    found = {**dict.fromkeys(ground.inside.names, ""), **ground.image.environment}
    return {name: value for name, value in sorted(found.items()) if override(name) or is_proxy(name)}


def seat(node: Node, ground: Ground) -> Node:
    """The node as its launcher sees it: the image's interpreter, and devices that are numbered from 0."""
    # By the order that they have on the host, whatever the order of the list.
    shown = sorted(node.devices or ())
    devices = None if node.devices is None else tuple(shown.index(device) for device in node.devices)
    return replace(node, devices=devices, python=ground.inside.python)


def make(
    settings: Settings, node: Node, ground: Ground, run_id: str, where: Directories, grace: float
) -> Container:
    """The container of one node. Raises InputError for a `container_user` who cannot use the run's files."""
    _check_user(settings, ground)
    image = reference(settings.image or "", ground.image)
    unset = tuple(traps(ground))
    own_user = settings.container_user is None
    name = f"clusterkit-{run_id}-{places.file_name(node.alias)}"
    files = _files(ground, where) if own_user else {}
    checkpoints = _own_checkpoints(settings, where)
    options = (
        *("--detach", "--rm", "--pull=never", "--name", name),
        *("--label", f"{RUN_LABEL}={run_id}", "--label", f"{NODE_LABEL}={node.node_rank}"),
        *("--network=host", "--log-driver=none", "--stop-signal=SIGTERM"),
        f"--stop-timeout={math.ceil(grace) + STOP_MARGIN_S}",
        *_user(settings, ground),
        *_devices(node, ground),
        *_limits(settings, ground),
        *_mounts(where, own_user, checkpoints, files),
        *(word for volume in settings.volumes for word in ("--volume", volume)),
        *_environment(node, ground, run_id, where if own_user else None, unset),
        *settings.container_args,
        *("--workdir", where.work, "--entrypoint", ground.inside.python),
    )
    inside = ("-I", posixpath.join(where.run, "agent.pyz"), "enter", where.run)
    return Container(
        kind=ground.runtime.kind,
        runtime=ground.runtime.command,
        image=image,
        name=name,
        python=ground.inside.python,
        command=(*ground.runtime.command, "run", *options, image, *inside),
        unset=unset,
        home=where.home if own_user else "",
        checkpoints=checkpoints,
        sources=tuple(source for source in map(_source, settings.volumes) if source),
        files=MappingProxyType(files),
    )


def reference(wanted: str, image: Image) -> str:
    """The image by what its content decides: its registry's digest, else its own id."""
    return f"{Name.of(wanted).repository}@{image.digest}" if image.digest else image.id


def _check_user(settings: Settings, ground: Ground) -> None:
    """The run's files are the login user's, and private: only that user and root can work with them."""
    uid = ground.inside.uid
    allowed = (0,) if ground.runtime.rootless else (0, ground.host.uid)
    if settings.container_user is None or uid is None or uid in allowed:
        return
    raise InputError(
        f"host {settings.alias}: container_user={settings.container_user} is uid {uid} in the image, and the "
        f"run's files belong to {ground.host.user} (uid {ground.host.uid}) alone",
        f"log in as the user with uid {uid} (ansible_user), or leave container_user out",
    )


def _user(settings: Settings, ground: Ground) -> tuple[str, ...]:
    """Who the job is. Rootless, the container's root is the login user outside."""
    if settings.container_user is not None:
        return ("--user", settings.container_user)
    if ground.runtime.rootless:
        return ("--user", "0:0")
    host = ground.host
    others = (word for group in host.groups if group != host.gid for word in ("--group-add", str(group)))
    return ("--user", f"{host.uid}:{host.gid}", *others)


def _devices(node: Node, ground: Ground) -> tuple[str, ...]:
    """The node's GPUs by the host's numbers. Docker reads its list as CSV, so it has quotes of its own."""
    ways = ground.runtime.nvidia
    if node.devices is None:
        # NVIDIA's runtime may be Docker's default, and its images ask for all GPUs.
        return ("--env", "NVIDIA_VISIBLE_DEVICES=void") if "runtime" in ways else ()
    if ground.runtime.kind == "podman" or ways == ("cdi",):
        return tuple(word for device in node.devices for word in ("--device", f"nvidia.com/gpu={device}"))
    return ("--gpus", f'"device={",".join(map(str, node.devices))}"')


def _limits(settings: Settings, ground: Ground) -> tuple[str, ...]:
    """Shared memory, stack, and for RDMA cards their devices and locked memory, where the host allows it."""
    given = settings.container_args
    limits = {word.removeprefix("--ulimit=").partition("=")[0] for word in given}
    own_shm = any(word.partition("=")[0] in ("--ipc", "--shm-size") for word in given)
    inside = ground.inside
    stack = inside.stack is None or inside.stack >= STACK_BYTES
    options = [] if own_shm else [f"--shm-size={settings.shm_size}"]
    # Given one limit Podman sets others too, which not every host permits; `enter` raises this one inside.
    if stack and "stack" not in limits and ground.runtime.kind == "docker":
        options += ["--ulimit", f"stack={STACK_BYTES}:{STACK_BYTES}"]
    if ground.cards and ground.verbs:
        options += ["--device", "/dev/infiniband"]
    if ground.cards and inside.locked_memory is None and "memlock" not in limits:
        options += ["--ulimit", "memlock=-1:-1"]
    if ground.runtime.kind == "podman":
        # SELinux would keep the container out of directories that have no label of its own.
        options += ["--security-opt", "label=disable"]
    return tuple(options)


def _own_checkpoints(settings: Settings, where: Directories) -> str:
    """The directory of the checkpoints; "" where it lies in the code, or in a volume of the user's."""
    targets = [volume.split(":")[1] for volume in settings.volumes if ":" in volume]
    known = any(_inside(where.checkpoints, folder.rstrip("/")) for folder in (where.work, *targets))
    return "" if known else where.checkpoints


def _mounts(
    where: Directories, own_user: bool, checkpoints: str, files: Mapping[str, str]
) -> tuple[str, ...]:
    folders = [where.run, *([] if _inside(where.records, where.run) else [where.records]), where.work]
    folders += [folder for folder in (where.home if own_user else "", checkpoints) if folder]
    options = [_mount(folder, folder) for folder in folders]
    if PASSWD in files:
        options.append(_mount(posixpath.join(where.run, PASSWD), "/etc/passwd", "readonly"))
    return tuple(word for option in options for word in ("--mount", option))


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _mount(source: str, target: str, *more: str) -> str:
    """One value of `--mount`, which is a line of CSV."""
    return ",".join(_field(part) for part in ("type=bind", f"source={source}", f"target={target}", *more))


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def _environment(
    node: Node, ground: Ground, run_id: str, where: Directories | None, unset: Iterable[str]
) -> tuple[str, ...]:
    """The marks by which its processes are found, who the user is, and which of the image's variables go."""
    values = {"CLUSTERKIT_RUN_ID": run_id, "CLUSTERKIT_NODE_RANK": str(node.node_rank)}
    if where is not None:
        values |= {"HOME": where.home, "USER": ground.host.user, "LOGNAME": ground.host.user}
    options = [word for name, value in values.items() for word in ("--env", f"{name}={value}")]
    if ground.runtime.kind == "docker":
        options += [word for name in unset for word in ("--env", name)]
    return tuple(options)


def _files(ground: Ground, where: Directories) -> dict[str, str]:
    """A passwd file with a line for the login user, where the image's own has none for that number."""
    if ground.inside.passwd is None or ground.runtime.rootless:
        return {}
    host = ground.host
    lines = ground.inside.passwd.rstrip("\n")
    own = f"{_plain(host.user)}:x:{host.uid}:{host.gid}::{_plain(where.home)}:/bin/sh"
    return {PASSWD: f"{lines}\n{own}\n".lstrip("\n")}


def _plain(text: str) -> str:
    return text.replace(":", "_").replace("\n", "_")


def _source(volume: str) -> str:
    """The host's path of a volume; "" for one that the runtime keeps itself, or makes up."""
    source, colon, _ = volume.partition(":")
    return source if colon and source.startswith("/") else ""
