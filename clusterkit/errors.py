"""Everything that clusterkit raises on purpose, and the exit codes that follow.

    ClusterkitError(message, hint)          1   what happened, and what to do next
    ├─ InputError                           2   the user must edit something
    │   ├─ InventoryError(path, line)       2   a line of an inventory or of a variables file
    │   ├─ TemplateError(template)          2   a template that does not render
    │   ├─ TopologyError                    2   no devices, a duplicate address, ranks that do not fit
    │   │   ├─ NodeError(host)              2   one host does not fit into the job
    │   │   └─ PortsTaken                   2   no window of ports is free on all hosts
    │   └─ NotFound                         2   no such run, rank, host pattern or file
    ├─ HostError(host)                      1   about exactly one host
    │   ├─ Unreachable(host, stage)         4   name, TCP, host key, authentication, shell
    │   ├─ CommandFailed(host)              1   it ran and ended with the wrong status
    │   ├─ Held(host)                       1   another run holds GPUs or ports that this one needs
    │   └─ HostTimeout(host)                1   a named wait on a host passed its limit
    ├─ FleetError({host: HostError})       4/1  the worst of its parts
    └─ Interrupted(signum)            130/143   SIGINT or SIGTERM; names the hosts not finished

Anything else that reaches `main()` is a bug of ours: exit code 70.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """What a command's exit status means (the table of the README and of `--help`)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PENDING = 3
    UNREACHABLE = 4
    BUG = 70
    INTERRUPTED = 130
    STOPPED = 143


def worst(codes: Iterable[int]) -> int:
    """The one code that stands for several: 4, then 1, then 3, then whatever else is not 0."""
    found = set(codes)
    for code in (ExitCode.UNREACHABLE, ExitCode.FAILED, ExitCode.PENDING):
        if code in found:
            return code
    return max(found, default=0)


class ClusterkitError(Exception):
    """What happened (`message`), and what to do next (`hint`, may be empty)."""

    exit_code: int = ExitCode.FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(ClusterkitError):
    """Something that the user wrote has to be changed."""

    exit_code = ExitCode.USAGE


class InventoryError(InputError):
    """A line of an inventory, or of a file under group_vars or host_vars, cannot be used."""

    def __init__(self, path: Path | str, line: int | None, message: str, hint: str = "") -> None:
        where = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{where}: {message}", hint)
        self.path = path
        self.line = line


class TemplateError(InputError):
    """A template does not render."""


class TopologyError(InputError):
    """The hosts, devices, addresses or ports do not make up a job."""


class NodeError(TopologyError):
    """One host, named by its inventory alias, does not fit into the job; without it the others may."""

    def __init__(self, host: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.host = host


class PortsTaken(TopologyError):
    """No window of ports is free on all hosts."""


class NotFound(InputError):
    """No such run, rank, host pattern or file; the message lists what there is."""


class HostError(ClusterkitError):
    """Something about exactly one host, named by its inventory alias."""

    def __init__(self, host: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.host = host


class Unreachable(HostError):
    """The host could not be used at all; `stage` says how far we came.

    Stages: `configuration` (ssh_config), `name`, `tcp`, `banner`, `host key`, `authentication`, `sudo`,
    `shell`, `connection` (lost later).
    """

    exit_code = ExitCode.UNREACHABLE

    def __init__(self, host: str, stage: str, message: str, hint: str = "") -> None:
        super().__init__(host, message, hint)
        self.stage = stage


class CommandFailed(HostError):
    """A command ran on the host and ended with a status that it should not have."""


class Held(HostError):
    """Another run holds GPUs or ports of this host; the message says whose it is, and since when."""


class HostTimeout(HostError):
    """A named wait on this host passed its limit."""


def named(host: str, message: str) -> str:
    """The message with its host in front, once."""
    return message if message.startswith(host) else f"{host}: {message}"


def apart(host: str, message: str) -> tuple[str, str]:
    """The host as a message of remote/ begins with it (`HOST (ADDRESS)`), and the rest of the message."""
    begin = re.match(rf"{re.escape(host)}( \([^()]*\))?: ", message)
    return (begin.group(0)[:-2], message[begin.end() :]) if begin else (host, message)


class FleetError(ClusterkitError):
    """At least one host failed; the others' results are not lost, they were reported before."""

    def __init__(self, failures: Mapping[str, HostError], doing: str) -> None:
        self.failures = dict(failures)
        self.doing = doing
        super().__init__(f"{doing}: failed on {len(self.failures)} host{'s'[: len(self.failures) != 1]}")

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """The worst code of the failures."""
        return worst(error.exit_code for error in self.failures.values())


class Interrupted(ClusterkitError):
    """SIGINT or SIGTERM arrived; `unfinished` are the hosts that were still awaited."""

    def __init__(self, signum: int, unfinished: Iterable[str] = ()) -> None:
        self.signum = signum
        self.unfinished = tuple(unfinished)
        super().__init__(f"interrupted by {signal.Signals(signum).name}")

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.signum
