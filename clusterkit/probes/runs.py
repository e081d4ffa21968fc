"""Runs of clusterkit that are alive on the host, and processes that an ended one has left behind."""

from __future__ import annotations

import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import PortRange


@dataclass(frozen=True)
class LiveRun:
    """A node of a run whose supervisor is alive.

    `devices` are the GPUs that it says it has locked (`node/hold.py`), with its `owner` and age in seconds;
    else those that its processes say they use, None if we can see none that says so (another user's, or not
    started yet).
    """

    run_id: str
    node_rank: int
    ports: PortRange
    devices: frozenset[int] | None = None
    owner: str = ""
    age_s: float | None = None


@dataclass(frozen=True)
class LeftOver:
    """A process that carries the mark of a run that has no supervisor here any more."""

    pid: int
    run_id: str
    command: str


@dataclass(frozen=True)
class RunFacts:
    """What is there of any run, as far as the login user may see."""

    live: tuple[LiveRun, ...]
    left_over: tuple[LeftOver, ...]


# A supervisor holds an abstract socket by the name of its run, which vanishes with the process, whatever
# kills it. One grep reads every environment that we may read; without its -z a loop does (slow, but rare).
# Sockets and ports belong to a network namespace: a process in another one (a sandbox host on this machine)
# is another host's business.
_SHELL = r"""
is_here() { [ ! -e /proc/self/ns/net ] || [ "$1/ns/net" -ef /proc/self/ns/net ]; }
grep '@clusterkit/' /proc/net/unix && date +now=%s && cat /var/tmp/clusterkit-locks/*/*.json 2>/dev/null
marks='^(CLUSTERKIT_RUN_ID|CLUSTERKIT_DEVICES|FLAGS_selected_gpus)='
if printf 'a\0b\0' | grep -qz '^b' 2>/dev/null; then
    found=$(grep -asHz -E "$marks" /proc/[0-9]*/environ | tr '\n\0' ' \n')
else
    found=$(for file in /proc/[0-9]*/environ; do
        tr '\n\0' ' \n' 2>/dev/null <"$file" | grep -E "$marks" | sed "s|^|$file:|"
    done)
fi
[ -n "$found" ] || exit 0
echo "$found"
echo "$found" | while IFS=: read -r file mark; do
    case $mark in CLUSTERKIT_RUN_ID=*) is_here "${file%/environ}" || continue ;; *) continue ;; esac
    command=$(tr '\n\0' '  ' 2>/dev/null <"${file%environ}cmdline")
    [ -n "$command" ] && echo "${file%environ}cmdline:$command"
done
exit 0
"""

_NOW = re.compile(r"^now=(\d+)$", re.MULTILINE)
_SOCKET = re.compile(r"@clusterkit/([^/\s@]+)/(\d+)/(\d+)-(\d+)@*$", re.MULTILINE)
_PROCESS = re.compile(r"^/proc/(\d+)/(environ|cmdline):(.*)$", re.MULTILINE)


def _parse(output: Output) -> RunFacts:
    marks: dict[int, dict[str, str]] = defaultdict(dict)
    for pid, kind, text in _PROCESS.findall(output.stdout):
        name, _, value = text.partition("=") if kind == "environ" else ("command", "=", text.strip())
        marks[int(pid)][name] = value
    processes = {
        pid: said for pid, said in marks.items() if said.get("CLUSTERKIT_RUN_ID") and "command" in said
    }
    live = tuple(
        _live(run_id, int(rank), PortRange(int(first), int(last)), _devices(run_id, processes), output.stdout)
        for run_id, rank, first, last in dict.fromkeys(_SOCKET.findall(output.stdout))
    )
    alive = {run.run_id for run in live}
    left = (
        LeftOver(pid, said["CLUSTERKIT_RUN_ID"], said["command"]) for pid, said in sorted(processes.items())
    )
    return RunFacts(live, tuple(process for process in left if process.run_id not in alive))


def _live(run_id: str, rank: int, ports: PortRange, devices: frozenset[int] | None, text: str) -> LiveRun:
    now = _NOW.search(text)
    for held in _holds(text):
        if (held["run_id"], held["node_rank"]) == (run_id, rank):
            # Anybody on the host can put a file there, with anything in it.
            with contextlib.suppress(TypeError, ValueError):
                age = max(0.0, float(now[1]) - float(held["since"])) if now else None
                held_devices = frozenset(int(device) for device in held["devices"] or ())
                return LiveRun(run_id, rank, ports, held_devices, str(held["owner"])[:100], age)
    return LiveRun(run_id, rank, ports, devices)


def _holds(text: str) -> Iterator[Mapping[str, Any]]:
    """What is held here; of supervisors that are gone too, whose socket is not there."""
    for line in text.splitlines():
        if line.startswith('{"lock": 1'):
            with contextlib.suppress(ValueError):
                held = json.loads(line)
                if (
                    isinstance(held, dict)
                    and {"run_id", "node_rank", "owner", "since", "devices"} <= held.keys()
                ):
                    yield held


def _devices(run_id: str, processes: Mapping[int, Mapping[str, str]]) -> frozenset[int] | None:
    said = [
        text
        for marks in processes.values()
        if marks["CLUSTERKIT_RUN_ID"] == run_id
        for text in (marks.get("CLUSTERKIT_DEVICES"), marks.get("FLAGS_selected_gpus"))
        if text is not None
    ]
    if not said:
        return None
    return frozenset(int(word) for text in said for word in text.split(",") if word.strip().isdigit())


# Reading the environment of a stuck process can get stuck too.
RUNS = Probe("runs", _SHELL, _parse, timeout=8, about="looking for other runs")
