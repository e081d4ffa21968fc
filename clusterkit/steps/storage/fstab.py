"""Our lines of /etc/fstab. The mark is in the options, where it survives every tool that keeps the line.

    nas:/data /data nfs4 vers=4.2,_netdev,nofail,x-clusterkit,x-clusterkit.made=1 0 0

mount(8) passes options that begin with `x-` to nobody. What the further marks say is needed to take back
exactly what we did: `made=N` (we made the last N directories of the path), `found` (it was mounted before,
and stays so), `newline` (the file did not end with one).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterkit.inventory.model import Mount
from clusterkit.probes.storage import FstabLine
from clusterkit.probes.storage.tables import escape
from clusterkit.steps.storage.identity import is_network

MARK = "x-clusterkit"


@dataclass(frozen=True)
class Marks:
    """What our line says about how it came about."""

    made: int = 0
    found: bool = False
    newline: bool = False

    @property
    def text(self) -> str:
        """As they stand in the options, with a comma before each."""
        made = f",{MARK}.made={self.made}" if self.made else ""
        return made + f",{MARK}.found" * self.found + f",{MARK}.newline" * self.newline


def is_mark(option: str) -> bool:
    """True for an option that is ours alone."""
    return option == MARK or option.startswith(f"{MARK}.")


def marked(lines: Iterable[FstabLine]) -> list[FstabLine]:
    """Those of the lines that we wrote."""
    return [line for line in lines if MARK in line.options]


def marks(line: FstabLine) -> Marks:
    """What the marks of our line say; a number that somebody spoilt counts as none."""
    made = next(
        (option.partition("=")[2] for option in line.options if option.startswith(f"{MARK}.made=")), ""
    )
    return Marks(
        int(made) if made.isdigit() else 0, f"{MARK}.found" in line.options, f"{MARK}.newline" in line.options
    )


def options(mount: Mount) -> tuple[str, ...]:
    """The declared options, and those without which a host may not boot while the server is away."""
    declared = [option for option in mount.options.split(",") if option and option != "defaults"]
    needed = (["_netdev"] if is_network(mount.type) else []) + ["nofail"]
    return (*declared, *(option for option in needed if option not in declared))


def entry(mount: Mount) -> str:
    """What our line says, without the marks: how it is shown and compared."""
    return f"{mount.source} {mount.type} {','.join(options(mount))}"


def entry_of(line: FstabLine) -> str:
    """The same of a line that is there."""
    own = [option for option in line.options if not is_mark(option)]
    return f"{line.source} {line.type} {','.join(own)}"


def written(mount: Mount, marked: Marks) -> str:
    """Our whole line."""
    words = (mount.source, mount.path, mount.type, ",".join((*options(mount), MARK)) + marked.text)
    return " ".join((*(escape(word) for word in words), "0 0"))


def missing(line: FstabLine) -> Sequence[str]:
    """Without which options of somebody else's line the host waits at boot for a server that is away."""
    wanted = (["_netdev"] if is_network(line.type) else []) + ["nofail"]
    return [option for option in wanted if option not in line.options and "noauto" not in line.options]
