"""Faults that can be planted on a sandbox host, and mended again. docs/faults.md lists them all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clusterkit.sandbox.sandbox import Sandbox

Doing = Callable[[Sandbox, str], None]
# How a change is made on a host, and how it is taken back.
Change = tuple[Doing, Doing]

ANSWERS = "/etc/clusterkit-sandbox/gpus.json"


@dataclass(frozen=True)
class Fault:
    """Shell lines for root on the host; `check` is the one that names it, with `words` in its message."""

    name: str
    check: str
    status: str
    plant: Doing
    mend: Doing
    words: str
    # Checks that cannot be made any more while the fault is there.
    hides: tuple[str, ...] = ()
    # What else is not as it should be: other checks of the host with their status, the same check of another
    # host, facts put to the vote, and findings between the hosts.
    beside: tuple[tuple[str, str], ...] = ()
    twin: str = ""
    votes: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    # Whether the hosts do not make up one job while it is there.
    no_job: bool = False


@contextmanager
def planted(fault: Fault, sandbox: Sandbox, host: str) -> Iterator[None]:
    """The fault is there, and gone afterwards."""
    with there((fault.plant, fault.mend), sandbox, host):
        yield


@contextmanager
def there(change: Change, sandbox: Sandbox, host: str) -> Iterator[None]:
    """The change is made, and taken back afterwards."""
    plant, mend = change
    plant(sandbox, host)
    try:
        yield
    finally:
        mend(sandbox, host)


def told(sandbox: Sandbox, host: str, script: str, stdin: str = "") -> str:
    """What the script printed; it has to end well."""
    ended = sandbox.sh(host, script, stdin=stdin)
    assert ended.returncode == 0, f"{script}: {ended.stderr}"
    return ended.stdout


def do(sandbox: Sandbox, host: str, script: str, stdin: str = "") -> None:
    """The script is done; it has to end well."""
    told(sandbox, host, script, stdin)


def lines(plant: str, mend: str) -> Change:
    """Both as scripts for root on the host."""
    return (
        lambda sandbox, host: do(sandbox, host, plant),
        lambda sandbox, host: do(sandbox, host, mend),
    )


def program(path: str, text: str) -> Change:
    """A program in front of the real one, or in place of none."""

    def plant(sandbox: Sandbox, host: str) -> None:
        do(sandbox, host, f"cat >{path} && chmod 755 {path}", f"#!/bin/sh\n{text}\n")

    return plant, lambda sandbox, host: do(sandbox, host, f"rm -f {path}")


def answers(
    change: Callable[[dict[str, Any]], None],
) -> Change:
    """Another answer of nvidia-smi."""

    def plant(sandbox: Sandbox, host: str) -> None:
        said = json.loads(told(sandbox, host, f"cp {ANSWERS} {ANSWERS}.sound && cat {ANSWERS}"))
        change(said)
        do(sandbox, host, f"cat >{ANSWERS}", json.dumps(said))

    return plant, lambda sandbox, host: do(sandbox, host, f"mv {ANSWERS}.sound {ANSWERS}")


def gpus(numbers: Sequence[int], **fields: Any) -> Callable[[dict[str, Any]], None]:
    """Other properties of these GPUs; a dot in a name is written `__`."""

    def change(said: dict[str, Any]) -> None:
        for number in numbers:
            said["gpus"][number].update({name.replace("__", "."): value for name, value in fields.items()})

    return change


def nodes_with(**changes: Any) -> Callable[[dict[str, Any]], None]:
    """Other properties of the whole host."""
    return lambda said: said.update(changes)


_START = """
setpriv --reuid {user} --regid {user} --clear-groups env {environment} \\
    {python} /run/planted.py </dev/null >/run/planted.out 2>&1 &
echo $! >/run/planted.pid
while ! grep -q ready /run/planted.out; do
    kill -0 "$(cat /run/planted.pid)" || {{ cat /run/planted.out >&2; exit 1; }}
    sleep 0.05
done
"""


def running(text: str, python: str, environment: str = "", user: str = "root") -> Change:
    """A Python process of that user's, which stays once it has done this."""
    whole = f"import socket, time\n{text}\nprint('ready', flush=True)\ntime.sleep(600)\n"

    def plant(sandbox: Sandbox, host: str) -> None:
        do(sandbox, host, "cat >/run/planted.py; chmod 644 /run/planted.py", whole)
        do(sandbox, host, _START.format(user=user, environment=environment, python=python))

    kill = 'kill -KILL "$(cat /run/planted.pid)"; rm /run/planted.*'
    return plant, lambda sandbox, host: do(sandbox, host, kill)


def supervised(run_id: str) -> str:
    """What a supervisor that lives holds: the name of its run, its node rank, its ports."""
    return f"held = socket.socket(socket.AF_UNIX); held.bind(chr(0) + 'clusterkit/{run_id}/0/20000-20019')"
