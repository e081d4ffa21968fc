"""Use case: find runs on the hosts themselves, from a machine that did not start them.

Every host keeps a copy of the run's record in the run's directory (`runs/onhosts.py`). The reader's inventory
says which hosts there are and how they are reached.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clusterkit.errors import HostError, NotFound, Unreachable
from clusterkit.inventory.model import Settings
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote, Result, Stream
from clusterkit.runs import onhosts
from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.runs.status import Observed, document
from clusterkit.sync import agent_script, shell_path


@dataclass(frozen=True)
class Hosts:
    """The hosts of the reader's inventory, connected, with the limit of one answer in seconds."""

    inventory: str
    members: Mapping[str, Settings]
    remotes: Mapping[str, Remote]
    forks: int = 64
    timeout: float = 30.0
    cancel: threading.Event | None = None


@dataclass(frozen=True)
class Found:
    """Which host has which runs, and the hosts that did not answer; run ids in no order."""

    runs: Mapping[str, tuple[str, ...]]
    silent: Mapping[str, HostError]

    def hosts_of(self, run_id: str) -> list[str]:
        """The hosts that have this run, in the order of the inventory."""
        return [host for host, runs in self.runs.items() if run_id in runs]

    @property
    def identifiers(self) -> list[str]:
        """All runs, the oldest first (identifiers sort by time)."""
        return sorted({run_id for runs in self.runs.values() for run_id in runs})


def look(hosts: Hosts) -> Found:
    """The runs of which the hosts keep a record."""

    def one(settings: Settings) -> tuple[str, ...]:
        folder = shell_path(onhosts.runs_folder(settings))
        script = (
            f"cd {folder} 2>/dev/null || exit 0\n"
            f'for file in */{onhosts.NAME}; do [ -f "$file" ] && echo "${{file%/*}}"; done\nexit 0\n'
        )
        remote = hosts.remotes[settings.alias]
        return tuple(remote.run(script, timeout=hosts.timeout, doing="looking for runs").text.split())

    outcome = fan_out(hosts.members, one, forks=hosts.forks, cancel=hosts.cancel)
    return Found(outcome.good, outcome.bad)


def choose(run: str | None, found: Found, here: Sequence[str], inventory: str) -> str:
    """The run that `run` (an identifier or a part of it) names; without it the newest. Raises NotFound.

    `here` are those of this inventory that are recorded on this machine.
    """
    known = sorted({*found.identifiers, *here})
    fitting = [name for name in known if run in name] if run else known[-1:]
    if run in known:
        fitting = [run]
    if len(fitting) == 1:
        return fitting[0]
    where = f"on the {len(found.runs)} host{'s'[: len(found.runs) != 1]} of {inventory}"
    silent = f" ({', '.join(found.silent)} did not answer)" if found.silent else ""
    if fitting:
        raise NotFound(
            f"`{run}` fits {len(fitting)} runs {where}: {', '.join(fitting[-5:])}", "give more of it"
        )
    newest = f"the newest are {', '.join(known[-3:])}" if known else "no run is kept there"
    raise NotFound(f"there is no run{f' `{run}`' if run else ''} {where}{silent}", newest)


def read(run_id: str, found: Found, hosts: Hosts) -> RunRecord:
    """The record of one run, each node as its own host describes it. Raises NotFound."""
    copies = _copies({host: [run_id] for host in found.hosts_of(run_id)}, hosts)
    own = {host: records[run_id] for host, records in copies.items() if run_id in records}
    record = onhosts.merged(own, hosts.members, hosts.inventory)
    if record is None:
        holders = ", ".join(found.hosts_of(run_id))
        raise NotFound(
            f"the record of run {run_id} on {holders} cannot be read",
            "another version of clusterkit wrote it",
        )
    return record


def survey(run_ids: Sequence[str], found: Found, hosts: Hosts) -> list[RunRecord]:
    """Records of several runs with the state that node 0 tells; a run that cannot be read is left out."""
    wanted: dict[str, list[str]] = {}
    for run_id in run_ids:
        wanted.setdefault(found.hosts_of(run_id)[0], []).append(run_id)
    records = [
        merged
        for host, of_host in _copies(wanted, hosts).items()
        for record in of_host.values()
        if (merged := onhosts.merged({host: record}, hosts.members, hosts.inventory))
    ]
    by_host: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.nodes[0].host in hosts.remotes:
            by_host.setdefault(record.nodes[0].host, []).append(record)

    def ask(of_host: list[RunRecord]) -> dict[str, Observed]:
        return {record.run_id: _first(record.nodes[0], hosts) for record in of_host}

    outcome = fan_out(by_host, ask, forks=hosts.forks, cancel=hosts.cancel)
    states = {run_id: seen for answers in outcome.good.values() for run_id, seen in answers.items()}
    return [
        replace(record, status=document(record, {record.nodes[0].host: seen}))
        if (seen := states.get(record.run_id)) and seen.state
        else record
        for record in sorted(records, key=lambda each: each.run_id, reverse=True)
    ]


def _copies(wanted: Mapping[str, Sequence[str]], hosts: Hosts) -> dict[str, dict[str, RunRecord]]:
    """The records of these runs, as each host keeps them; what cannot be read is left out."""

    def one(item: tuple[str, Sequence[str]]) -> dict[str, RunRecord]:
        host, run_ids = item
        folder = shell_path(onhosts.runs_folder(hosts.members[host]))
        files = " ".join(shlex.quote(f"./{run_id}/{onhosts.NAME}") for run_id in run_ids)
        script = f"cd {folder} && cat -- {files}\nexit 0\n"
        answer = hosts.remotes[host].run(script, timeout=hosts.timeout, doing="reading the run's record")
        records = [record for line in answer.text.splitlines() if (record := onhosts.parse(line))]
        return {record.run_id: record for record in records if record.run_id in run_ids and record.nodes}

    jobs = {host: (host, run_ids) for host, run_ids in wanted.items()}
    return fan_out(jobs, one, forks=hosts.forks, cancel=hosts.cancel).good


def _first(node: NodeRecord, hosts: Hosts) -> Observed:
    script = agent_script(node.python, node.run_dir, "state")
    answer = hosts.remotes[node.host].run(script, timeout=hosts.timeout, doing="reading the run's state")
    try:
        state = json.loads(answer.text.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return Observed(None, answer.last_lines(1) or "no answer")
    return Observed(None, str(state["error"])) if "error" in state else Observed(state)


class Absent:
    """A node of a run whose host the reader's inventory does not name: every use of it is `Unreachable`."""

    def __init__(self, alias: str, inventory: str) -> None:
        self._alias = alias
        self._inventory = inventory

    @property
    def alias(self) -> str:
        """The host's name in the run."""
        return self._alias

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        """Raises Unreachable."""
        raise self._why()

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        """Raises Unreachable."""
        raise self._why()

    def close(self) -> None:
        """Nothing is open."""

    def _why(self) -> Unreachable:
        return Unreachable(
            self._alias,
            "configuration",
            f"{self._alias}: it is a node of the run, but {self._inventory} does not name it",
            f"add a line for {self._alias} to the inventory",
        )
