"""The record of each run on this machine: what was planned, where it runs, how it ended, gathered logs.

    $XDG_STATE_HOME/clusterkit/runs/RUN_ID/
        run.json                 plan, rank table, state, times, exit codes, how each host was reached
        logs/rank-0003.log       what was gathered of rank 3's log, byte for byte
        logs/launcher-gpu02.log  the launcher's own words on a node
        logs/attempt-1/…         the same of each further attempt
        stacks/20261201-093000.json  what `clusterkit stacks` found then

Passwords are never part of it: reading a run's hosts again asks the inventory for them.
"""

from __future__ import annotations

import json
import os
import secrets
import string
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from clusterkit.errors import ClusterkitError, NotFound
from clusterkit.inventory.model import Settings
from clusterkit.runs import processes

SCHEMA = 1

ENDED = frozenset({"succeeded", "failed", "stopped", "lost"})

_REACH = ("address", "port", "user", "private_key_file", "ssh_common_args", "ssh_extra_args", "connection")


@dataclass(frozen=True)
class NodeRecord:
    """One node of a run: its place in the rank table, its directories on the host, and how it was reached.

    `devices` are the host's own numbers, by local rank; `container` is the name of its container.
    """

    host: str
    node_rank: int
    node_ip: str
    ranks: tuple[int, ...]
    python: str
    run_dir: str
    workdir: str
    log_dir: str
    reach: Mapping[str, Any]
    clock_offset_s: float = 0.0
    rank_log: str = "workerlog.{local}"
    servers: tuple[int, ...] = ()
    devices: tuple[int, ...] | None = None
    container: str = ""

    @property
    def processes(self) -> tuple[int, ...]:
        """Its ranks and its servers, as `processes.server` numbers these."""
        return (*self.ranks, *(processes.server(number) for number in self.servers))

    def log_of(self, rank: int) -> str:
        """The path of this rank's log on the host (the launcher names it after the local rank).

        Where only the launcher knows the whole name, `*` stands for the rest; the host's own word has it.
        """
        number = processes.server_number(rank)
        if number is not None:
            return f"{self.log_dir}/serverlog.{self.servers.index(number)}"
        return f"{self.log_dir}/{self.rank_log.replace('{local}', str(self.ranks.index(rank)))}"

    def settings(self, current: Settings | None = None) -> Settings:
        """How to reach the host again: as it was reached, with the secrets of today's inventory."""
        kept = Settings(alias=self.host, python=self.python, **dict(self.reach))
        if current is None:
            return kept
        return replace(kept, password=current.password, become_password=current.become_password)


@dataclass(frozen=True)
class RunRecord:
    """Everything that is known here about one run; `status` is the last status document seen."""

    run_id: str
    inventory: str
    script: str
    args: tuple[str, ...]
    created_at: float
    nodes: tuple[NodeRecord, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    grace: float = 40.0
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The run's last known state (see the JSON schema in docs/schema)."""
        return str(self.status.get("state", "planned"))

    @property
    def attempt(self) -> int:
        """The newest attempt that is known; the first is 0."""
        return int(self.status.get("attempt", 0))

    @property
    def world_size(self) -> int:
        """The number of ranks of the whole job."""
        return sum(len(node.ranks) for node in self.nodes)

    def node_of(self, rank: int) -> NodeRecord:
        """The node that has this global rank, or this server. Raises NotFound."""
        for node in self.nodes:
            if rank in node.processes:
                return node
        raise NotFound(
            f"run {self.run_id} has no {processes.words(rank)}: its ranks are 0-{self.world_size - 1}",
            "`clusterkit status` lists the ranks and their hosts",
        )


def reach(settings: Settings) -> dict[str, Any]:
    """How a host was reached, without any secret."""
    return {name: getattr(settings, name) for name in _REACH}


def new_run_id(now: float) -> str:
    """A new identifier that sorts by time, such as `20261130-213826-k3fz`."""
    stamp = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%d-%H%M%S")
    tail = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(4))
    return f"{stamp}-{tail}"


def iso(seconds: float | None) -> str | None:
    """Unix seconds as ISO 8601 in UTC with microseconds; None stays None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")


def state_directory(environ: Mapping[str, str]) -> Path:
    """Where runs are recorded: `$XDG_STATE_HOME/clusterkit/runs`, by default under `~/.local/state`."""
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".local/state")
    return Path(base) / "clusterkit" / "runs"


class RunStore:
    """The directory of run records. A write replaces a file at once, so a reader never sees half of one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, record: RunRecord) -> None:
        """Write the record; directories are made private (0700), the file too (0600).

        Raises ClusterkitError where that cannot be done; the record that was there before stays.
        """
        folder = self.folder(record.run_id)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "logs").mkdir(mode=0o700, exist_ok=True)
            _replace(folder / "run.json", json.dumps(_document(record), indent=1))
        except OSError as error:
            raise ClusterkitError(
                f"the run cannot be recorded in {folder}: {error.strerror}",
                "make room or mend the permissions there, or set XDG_STATE_HOME to another directory",
            ) from error

    def folder(self, run_id: str) -> Path:
        """The directory of one run."""
        return self.directory / run_id

    def log(self, run_id: str, rank: int, attempt: int = 0) -> Path:
        """Where the gathered log of a rank or a server is kept."""
        number = processes.server_number(rank)
        name = f"rank-{rank:04d}.log" if number is None else f"server-{number:04d}.log"
        return self._logs(run_id, attempt) / name

    def keep_stacks(self, run_id: str, text: str) -> Path:
        """Keep what `stacks` found now with the run; where. Raises ClusterkitError."""
        path = self.folder(run_id) / "stacks" / time.strftime("%Y%m%d-%H%M%S.json", time.gmtime())
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _replace(path, text)
        except OSError as error:
            raise ClusterkitError(
                f"the stacks cannot be kept in {path.parent}: {error.strerror}",
                "make room or mend the permissions there",
            ) from error
        return path

    def launcher_log(self, run_id: str, host: str, attempt: int = 0) -> Path:
        """Where the launcher's own messages on a host are kept."""
        return self._logs(run_id, attempt) / f"launcher-{host.replace('/', '_')}.log"

    def _logs(self, run_id: str, attempt: int) -> Path:
        logs = self.folder(run_id) / "logs"
        return logs / f"attempt-{attempt}" if attempt else logs

    def load(self, run_id: str) -> RunRecord:
        """The record of a run, by its identifier or a part of it that fits no other. Raises NotFound."""
        known = self.identifiers()
        fitting = [run_id] if run_id in known else [name for name in known if run_id and run_id in name]
        if len(fitting) == 1:
            return self._read(fitting[0])
        if fitting:
            raise NotFound(
                f"`{run_id}` fits {len(fitting)} runs: {', '.join(fitting[-5:])}", "give more of it"
            )
        raise NotFound(f"no run `{run_id}` is recorded in {self.directory}", _known_runs(known))

    def newest(self, inventory: str | None) -> RunRecord:
        """The newest run started from this inventory's path, else the newest of all. Raises NotFound."""
        latest: RunRecord | None = None
        for record in self.records():
            latest = latest or record
            if inventory is None or record.inventory == inventory:
                return record
        if latest is None:
            raise NotFound(
                f"no run is recorded in {self.directory}",
                "start one: clusterkit launch inventory.ini train.py",
            )
        return latest

    def records(self) -> Iterator[RunRecord]:
        """All runs, the newest first; a record that cannot be read is left out."""
        for run_id in reversed(self.identifiers()):
            try:
                yield self._read(run_id)
            except (OSError, ValueError, KeyError, TypeError):
                continue

    def identifiers(self) -> list[str]:
        """All run identifiers, the oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted(path.parent.name for path in self.directory.glob("*/run.json"))

    def _read(self, run_id: str) -> RunRecord:
        return _record(json.loads((self.folder(run_id) / "run.json").read_text()))


def _replace(path: Path, text: str) -> None:
    """The file holds the text, or what it held before. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _known_runs(known: Sequence[str]) -> str:
    return f"the newest are {', '.join(known[-3:])}" if known else "none is recorded yet"


def _document(record: RunRecord) -> dict[str, Any]:
    """`run.json`: the keys of `status --json`, and under `plan` what is needed to reach the run again."""
    plan = {key: value for key, value in asdict(record).items() if key != "status"}
    return {**record.status, "schema": SCHEMA, "run_id": record.run_id, "plan": plan}


def _record(document: Mapping[str, Any]) -> RunRecord:
    plan = document["plan"]
    nodes = tuple(_node(node) for node in plan["nodes"])
    status = {key: value for key, value in document.items() if key != "plan"}
    return RunRecord(**{**plan, "args": tuple(plan["args"]), "nodes": nodes, "status": status})


def _node(document: Mapping[str, Any]) -> NodeRecord:
    devices = document.get("devices")
    listed = {
        "ranks": tuple(document["ranks"]),
        "servers": tuple(document.get("servers", ())),
        "devices": None if devices is None else tuple(devices),
    }
    return NodeRecord(**{**document, **listed})


def age(record: RunRecord, now: float | None = None) -> float:
    """Seconds since the run was started."""
    return (time.time() if now is None else now) - record.created_at


def as_document(record: RunRecord) -> dict[str, Any]:
    """The record as JSON: what `run.json` holds."""
    return _document(record)


def from_document(document: Mapping[str, Any]) -> RunRecord:
    """The record that `as_document` wrote. Raises KeyError, TypeError, ValueError."""
    return _record(document)
