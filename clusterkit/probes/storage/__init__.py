"""Shared storage as a host sees it: what is mounted, what /etc/fstab says, whether the server answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from clusterkit.facts import Output, Probe
from clusterkit.probes.storage.asking import LIMIT_S, shell
from clusterkit.probes.storage.tables import FstabLine, Mounted, fstab_line, mounted

__all__ = ["LIMIT_S", "STORAGE", "FstabLine", "MountFacts", "Mounted", "Room", "StorageFacts"]


@dataclass(frozen=True)
class Room:
    """A file system's size, in bytes and in files; 0 files in all where it does not count them."""

    bytes: int
    free_bytes: int
    files: int
    free_files: int


@dataclass(frozen=True)
class MountFacts:
    """A declared mount as the host sees it. `at` is its path without symbolic links.

    `mounted` is what lies on top there, None for nothing. `answers`: the look at it came to an end in time;
    `error` is why it failed then. Of a path where nothing is mounted, `exists`, `directory` and `full` (there
    is something in the directory) are known, and how many of its last directories are `missing`; of a mounted
    one `writable` (for the login user, as the server says), `same` (it is the directory that its source
    names) and `room`. `device` is what the source is a link to.

    `server` is how far we came: "" (not asked), `nameless`, `connecting`, `connected`, `answered`, with its
    reply in hex or the system's error in `reply`.
    """

    path: str
    at: str
    mounted: Mounted | None = None
    answers: bool = True
    error: str = ""
    exists: bool = True
    directory: bool = True
    full: bool = False
    missing: int = 0
    writable: bool = False
    same: bool = False
    device: str = ""
    room: Room | None = None
    server: str = ""
    reply: str = ""
    addresses: frozenset[str] = frozenset()
    mounted_addresses: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StorageFacts:
    """The declared mounts by path, /etc/fstab (None if it cannot be read), and what mounting takes.

    `newline`: the last line of /etc/fstab ends with one.

    `programs` are the declared types for which there is a program mount.TYPE. `gpu_containers`: containers
    run on a machine with GPUs, so that systemd must not be reloaded.
    """

    mounts: Mapping[str, MountFacts] = field(default_factory=dict)
    fstab: tuple[FstabLine, ...] | None = ()
    newline: bool = True
    programs: frozenset[str] = frozenset()
    manager: str = ""
    gpu_containers: bool = False


class _Said:
    """What was printed about one mount: `look writable` and the like, by the words before the last."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def all(self, key: str) -> list[str]:
        return [value for name, value in self.lines if name == key]

    def last(self, key: str, default: str = "") -> str:
        return (self.all(key) or [default])[-1]

    def has(self, key: str) -> bool:
        return bool(self.all(key))


_LINE = re.compile(r"(\d+) (?:(path)|(look|resolve|reach) (\S+))(?: (.*))?")


def _parse(output: Output) -> StorageFacts:
    said: dict[str, _Said] = {}
    lines = output.stdout.splitlines()
    for line in lines:
        match = _LINE.fullmatch(line)
        if match:
            number, path, kind, word, value = match.groups()
            key = path or f"{kind} {word}"
            said.setdefault(number, _Said()).lines.append((key, value or ""))
    mounts = [_mount(each) for each in said.values()]
    fstab = [fstab_line(line.removeprefix("fstab ")) for line in lines if line.startswith("fstab ")]
    return StorageFacts(
        mounts={each.path: each for each in mounts},
        fstab=None if "fstab-unreadable" in lines else tuple(each for each in fstab if each),
        newline="fstab-without-newline" not in lines,
        programs=frozenset(line.split()[1] for line in lines if line.startswith("program ")),
        manager=next((line.split()[1] for line in lines if line.startswith("manager ")), ""),
        gpu_containers="gpu-containers" in lines,
    )


def _mount(said: _Said) -> MountFacts:
    path = said.last("path")
    there = [mounted(line) for line in said.all("look table")]
    on_top = there[-1][1] if there else None
    room, refused = said.last("look room"), said.has("look refused")
    stage, reply = _server(said)
    return MountFacts(
        path=path,
        at=said.last("look at", path),
        mounted=on_top,
        answers=said.has("look done") and bool(room or refused or on_top is None),
        error=_error(said.last("look error")) if refused else "",
        exists=on_top is not None or said.has("look exists"),
        directory=on_top is not None or said.has("look directory"),
        full=said.has("look full"),
        missing=len(said.all("look missing")),
        writable=said.has("look writable"),
        same=said.has("look same"),
        device=said.last("look device"),
        room=_room(room) if room else None,
        server=stage,
        reply=reply,
        addresses=frozenset(said.all("resolve declared")),
        mounted_addresses=frozenset(said.all("resolve mounted")),
    )


def _error(text: str) -> str:
    """`stat: cannot read file system information for '/data': Stale file handle` → its last words."""
    return text.rpartition(": ")[2]


def _room(text: str) -> Room:
    size, blocks, free, files, free_files = (int(word) for word in text.split())
    return Room(size * blocks, size * free, files, free_files)


def _server(said: _Said) -> tuple[str, str]:
    stages = said.all("reach server")
    if not stages:
        return "", ""
    stage, _, reply = stages[-1].partition(" ")
    return stage, reply or _error(said.last("reach error"))


STORAGE = Probe("storage", shell, _parse, timeout=2 * LIMIT_S, about="shared storage")
