"""Whether Docker or Podman answers for the login user, what it can do, and which images of ours it has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any, Literal

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import Settings
from clusterkit.probes.container.calling import calling, is_used
from clusterkit.probes.container.images import Image, image_of
from clusterkit.probes.container.names import PULLED

Problem = Literal["", "missing", "down", "denied", "other"]


@dataclass(frozen=True)
class Runtime:
    """A runtime that answers. `command` calls it (with sudo where the login user may not).

    `root` is where its images lie, `free` and `capacity` are of that file system, in bytes (None: nobody may
    look). `nvidia` says by what GPUs reach a container: `runtime`, `hook`, `cdi`; `device_links` whether
    /dev/char has links to them.
    """

    kind: Literal["docker", "podman"]
    command: tuple[str, ...]
    version: str
    architecture: str
    root: str
    free: int | None
    capacity: int | None
    cgroup_driver: str
    rootless: bool
    nvidia: tuple[str, ...]
    device_links: bool


@dataclass(frozen=True)
class Pulled:
    """An image that preflight brought here: its mark, and all names that it has."""

    mark: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class LeftOver:
    """A container that carries a run's label."""

    name: str
    run_id: str
    state: str


@dataclass(frozen=True)
class ContainerFacts:
    """What a host has for containers. `said` are the runtime's own words where it does not answer."""

    problem: Problem = ""
    said: str = ""
    runtime: Runtime | None = None
    image: Image | None = None
    pulled: tuple[Pulled, ...] = ()
    containers: tuple[LeftOver, ...] = ()


_SHELL = r"""
field() { printf '%s\n' "$info" | sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }
space() { LC_ALL=C df -Pk "$root" || LC_ALL=C $as df -Pk "$root"; }
info=$($as "$client" info --format '{{json .}}' 2>/dev/null | tr -d '\n')
say() { printf '%s=%s\n' "$1" "$2"; }
say version "$answer"
say info "$info"
root=$(field DockerRootDir)
root=${root:-$(field graphRoot)}
case $info in *io.containerd.snapshotter*) [ ! -d /var/lib/containerd ] || root=/var/lib/containerd ;; esac
say root "$root"
space 2>/dev/null | while read -r system size used free percent mount; do
    case $free in ''|*[!0-9-]*) continue ;; esac
    echo "free=$free"
    echo "capacity=$size"
done
if command -v nvidia-container-runtime-hook >/dev/null 2>&1 || command -v nvidia-container-cli >/dev/null 2>&1
then echo hook=yes; fi
for file in /etc/cdi/*.json /etc/cdi/*.yaml /var/run/cdi/*.json /var/run/cdi/*.yaml; do
    if grep -q 'nvidia.com/gpu' "$file" 2>/dev/null; then echo cdi=yes; break; fi
done
for link in /dev/char/195:*; do [ ! -e "$link" ] || { echo device_links=yes; break; }; done
say image "$($as "$client" image inspect --format '{{json .}}' "$image" 2>/dev/null | tr -d '\n')"
marked=$($as "$client" images --filter "reference=*$pulled" --format '{{.Repository}}:{{.Tag}}' 2>/dev/null)
marked=$(printf '%s\n' "$marked" | grep "$pulled:")
for mark in $marked; do
    echo "mark $mark"
    $as "$client" image inspect --format '{{range .RepoTags}}name {{.}}
{{end}}{{range .RepoDigests}}name {{.}}
{{end}}' "$mark" 2>/dev/null
done
shown="container {{.Names}} $run_of {{.Status}}"
$as "$client" ps --all --filter "label=$label" --format "$shown" 2>/dev/null
exit 0
"""


def _shell(settings: Settings) -> str:
    if not is_used(settings):
        return ""
    # The parser has no settings: it is told which name was asked for.
    asked = quote(f"wanted={settings.image}")
    return f"echo {asked}\n{calling(settings)}\npulled={PULLED}\n{_SHELL}"


def _parse(output: Output) -> ContainerFacts | None:
    """None on a host that trains without containers."""
    found = output.pairs()
    if "wanted" not in found:
        return None
    lines = output.stdout.splitlines()
    if "missing" in found or "failed" in found:
        return _unanswered(found)
    if not found.get("info"):
        return ContainerFacts("other", f"it answers, but `info` of version {found['version']} says nothing")
    return ContainerFacts(
        runtime=_runtime(json.loads(found["info"]), found),
        image=_image(found.get("image", ""), found["wanted"]),
        pulled=_pulled(lines),
        containers=tuple(_left_over(line) for line in lines if line.startswith("container ")),
    )


def _image(said: str, wanted: str) -> Image | None:
    """Podman answers with a list, also where it is asked for one image."""
    images = json.loads(said) if said else []
    first = images if isinstance(images, dict) else next(iter(images), None)
    return image_of(first, wanted) if first else None


def _unanswered(found: Mapping[str, str]) -> ContainerFacts:
    """Why nothing answers. Where sudo was tried too, that Docker refuses the user is still the reason."""
    if "missing" in found:
        return ContainerFacts("missing")
    failed = found["failed"]
    down = (
        "cannot connect to the docker daemon",
        "failed to connect to the docker api",
        "connection refused",
    )
    if any(words in failed.lower() for words in down):
        return ContainerFacts("down", failed)
    return ContainerFacts("denied" if "denied" in found else "other", failed)


def _runtime(info: Mapping[str, Any], found: Mapping[str, str]) -> Runtime:
    podman = "store" in info and "host" in info
    kind: Literal["docker", "podman"] = "podman" if podman else "docker"
    host = info["host"] if podman else {}
    sudo = ("sudo", "-n") if "sudo" in found else ()
    runtimes = info.get("Runtimes") or {}
    devices = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or ()]
    ways = {
        "runtime": "nvidia" in runtimes,
        "hook": "hook" in found and not podman,
        "cdi": "cdi" in found or any(device.startswith("nvidia.com/gpu") for device in devices),
    }
    return Runtime(
        kind=kind,
        command=(*sudo, kind),
        version=str(info["version"]["Version"] if podman else info.get("ServerVersion") or found["version"]),
        architecture=architecture(str(host.get("arch", "")) if podman else str(info.get("Architecture", ""))),
        root=found.get("root", ""),
        free=_bytes(found.get("free")),
        capacity=_bytes(found.get("capacity")),
        cgroup_driver=str(host.get("cgroupManager", "") if podman else info.get("CgroupDriver", "")),
        rootless=_rootless(host, info.get("SecurityOptions") or ()),
        nvidia=tuple(name for name, there in ways.items() if there),
        device_links="device_links" in found,
    )


def _rootless(host: Mapping[str, Any], options: Iterable[object]) -> bool:
    return bool((host.get("security") or {}).get("rootless")) or "name=rootless" in map(str, options)


def _bytes(kilobytes: str | None) -> int | None:
    return max(0, int(kilobytes)) * 1024 if kilobytes else None


def _pulled(lines: Iterable[str]) -> tuple[Pulled, ...]:
    """`mark NAME`, then `name NAME` for each name that the same image has."""
    found: dict[str, list[str]] = {}
    mark = ""
    for line in lines:
        kind, _, name = line.partition(" ")
        if kind == "mark":
            mark = name
            found[mark] = []
        elif kind == "name" and mark and name != mark:
            found[mark].append(name)
    return tuple(Pulled(mark, tuple(names)) for mark, names in found.items())


def _left_over(line: str) -> LeftOver:
    _, name, run_id, state = line.split(" ", 3)
    return LeftOver(name, run_id, state)


def architecture(machine: str) -> str:
    """As images name it: `x86_64` is `amd64`."""
    return {"x86_64": "amd64", "aarch64": "arm64", "armv8l": "arm64"}.get(machine, machine)


CONTAINER = Probe("container", _shell, _parse, timeout=20, about="the container runtime")
