"""Which command line a release of PaddlePaddle's launcher takes: one table, newest first.

An unknown option is no error for the launcher from 2.3 on: its value silently becomes the training script,
and the job runs on one node alone. So a command is only ever built for a version that is in the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from clusterkit.errors import InputError


@dataclass(frozen=True)
class Call:
    """What the launcher of one node must be told, whatever the names of its options are.

    `devices` are the accelerators to use; where there are none, `processes` ranks run on the CPU.
    """

    master: str
    node_count: int
    node_rank: int
    node_ip: str
    devices: tuple[int, ...] | None
    processes: int
    job_id: str
    log_dir: str


@dataclass(frozen=True)
class Dialect:
    """The options of all releases from `since` up to the next entry's; None where we cannot start one yet."""

    since: tuple[int, int]
    options: Callable[[Call], tuple[str, ...]] | None
    reason: str = ""


def for_version(version: str, host: str) -> Dialect:
    """The dialect of a PaddlePaddle version as its package metadata gives it ("3.3.1", "2.6.2.post120").

    Raises InputError, naming the host, for a version that cannot be started or that says nothing.
    """
    dialect = next((entry for entry in table() if entry.since <= _release(version, host)), None)
    if dialect is None or dialect.options is None:
        reason = dialect.reason if dialect else "it is older than any launcher that clusterkit knows"
        raise InputError(
            f"host {host}: PaddlePaddle {version} cannot be launched: {reason}",
            "install PaddlePaddle 2.3 or newer on every host, or set `python` to an interpreter that has it",
        )
    return dialect


def table() -> tuple[Dialect, ...]:
    """All dialects, newest first; a release belongs to the first entry that it is not older than."""
    return (
        Dialect(since=(2, 3), options=_collective),
        Dialect(
            since=(2, 0),
            options=None,
            reason="its launcher knows no --master and no --rank (2.3 brought them)",
        ),
        Dialect(
            since=(1, 8), options=None, reason="its launcher takes --cluster_node_ips and --node_ip only"
        ),
    )


def _collective(call: Call) -> tuple[str, ...]:
    """Options of 2.3 and newer, collective mode.

    `--master` without `--nnodes` starts independent single-node jobs, and without `--rank` the node ranks are
    drawn by lot: all of them are always given.
    """
    if call.devices is not None:
        ranks = ("--devices", ",".join(str(device) for device in call.devices))
    else:
        ranks = ("--nproc_per_node", str(call.processes))
    return (
        *("--master", call.master, "--nnodes", str(call.node_count), "--rank", str(call.node_rank)),
        *("--host", call.node_ip, *ranks, "--job_id", call.job_id, "--log_dir", call.log_dir),
    )


def _release(version: str, host: str) -> tuple[int, int]:
    """Major and minor number, which is all that decides a dialect (no release changed it in between)."""
    match = re.match(r"v?(\d+)\.(\d+)(?!\d)", version.strip())
    if match is None:
        found = f"{version!r} is no PaddlePaddle version" if version else "no PaddlePaddle was found there"
        raise InputError(
            f"host {host}: {found}, so its launcher's options are not known",
            "look on that host with `python -m pip show paddlepaddle paddlepaddle-gpu`, and reinstall it",
        )
    release = int(match[1]), int(match[2])
    if release == (0, 0):
        raise InputError(
            f"host {host}: PaddlePaddle calls itself {version}, as builds from source do, so its launcher's "
            "options are not known",
            "build it with PADDLE_VERSION set to the release it comes from, for example PADDLE_VERSION=3.3.1",
        )
    return release
