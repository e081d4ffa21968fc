"""Which command line a release of PaddlePaddle's launcher takes: one table, newest first.

An unknown option is no error for the launcher from 2.3 on: its value silently becomes the training script,
and the job runs on one node alone. So a command is only ever built for a version that is in the table.
Source: the launchers of 1.8.5, 2.0.2, 2.1.3, 2.2.2, 2.3.2, 2.4.2, 2.6.2 and 3.3.1 as their wheels have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusterkit.errors import InputError


@dataclass(frozen=True)
class Call:
    """What the launcher of one node must be told, whatever the names of its options are.

    `devices` are the accelerators to use; where there are none, `processes` ranks run on the CPU. `node_ips`
    and `rank_counts` are those of all nodes in node-rank order; `first_port` is the same for all nodes.
    In parameter-server mode `servers` and `trainers` are all endpoints, by number and rank.
    """

    master: str
    node_rank: int
    node_ip: str
    node_ips: tuple[str, ...]
    rank_counts: tuple[int, ...]
    first_port: int
    devices: tuple[int, ...] | None
    processes: int
    job_id: str
    log_dir: str
    servers: tuple[str, ...] = ()
    trainers: tuple[str, ...] = ()
    gloo_port: int = 0


@dataclass(frozen=True)
class Dialect:
    """The launcher of all releases from `since` up to the next entry's.

    `meets` says that the nodes' launchers meet at a master before they start ranks, `runs_programs` that a
    script without `.py` is started as it is (else it becomes Python's argument). `worker_log` is the name of
    the log that the launcher keeps of a local rank, with `{job}` and `{local}`; `*` is what only it knows.
    `cpu_nodes` and `cpu_ranks` limit how many nodes, and ranks of a node, can be on CPUs.
    """

    since: tuple[int, int]
    options: Callable[[Call], tuple[str, ...]]
    variables: Callable[[Call], Mapping[str, str]]
    meets: bool = True
    runs_programs: bool = True
    worker_log: str = "workerlog.{local}"
    equal_counts: bool = False
    cpu_nodes: int | None = None
    cpu_ranks: int | None = None
    address_from_name: bool = False
    mode_from_words: bool = False
    server_options: Callable[[Call], tuple[str, ...]] | None = None

    @property
    def name(self) -> str:
        """The oldest release of this dialect: "2.3"."""
        return f"{self.since[0]}.{self.since[1]}"

    def refuse(self, version: str, call: Call, aliases: tuple[str, ...], words: tuple[str, ...]) -> None:
        """Raise InputError where this launcher cannot form the world that the plan wants.

        `aliases` name the nodes in node-rank order; `words` are the script and its arguments.
        """
        if call.servers:
            _refuse_servers(self, version, call)
            return
        counts = call.rank_counts
        if self.equal_counts and len(set(counts)) > 1:
            shown = ", ".join(f"{alias} {count}" for alias, count in zip(aliases, counts, strict=True))
            raise InputError(
                f"PaddlePaddle {version} cannot start unequal numbers of ranks: its launcher takes every "
                f"node to have as many as its own ({shown})",
                "give every node as many, with `devices` or --devices, or use PaddlePaddle 2.3 or newer",
            )
        if call.devices is None and self.cpu_nodes is not None and len(counts) > self.cpu_nodes:
            where = "on one node only" if self.cpu_nodes else "on GPUs only"
            raise InputError(
                f"PaddlePaddle {version} cannot train on the CPUs of {_nodes(len(counts))}: "
                f"it trains {'on CPUs ' if self.cpu_nodes else ''}{where}",
                "use GPUs (`devices`), or PaddlePaddle 2.3 or newer",
            )
        if call.devices is None and self.cpu_ranks is not None and max(counts) > self.cpu_ranks:
            raise InputError(
                f"PaddlePaddle {version} cannot start {max(counts)} ranks on the CPU of one node: its "
                "launcher looks for a device for each",
                "write nproc_per_node=1, or use PaddlePaddle 2.4 or newer",
            )
        here = [ip for ip in call.node_ips if ip.startswith("127.")]
        if self.address_from_name and len(call.node_ips) > 1 and here:
            raise InputError(
                f"PaddlePaddle {version} cannot be several nodes on one machine: its launcher knows a node "
                "by the address of the machine's name",
                "use PaddlePaddle 2.2 or newer, or machines of their own",
            )
        if self.mode_from_words:
            _refuse_mode_words(version, words)


def table() -> tuple[Dialect, ...]:
    """All dialects, newest first; a release belongs to the first entry that it is not older than."""
    return (
        Dialect(since=(2, 4), options=_master, variables=_none, server_options=_servers_and_trainers),
        # It takes no PORT_RANGE, and names its logs by six letters that it draws.
        Dialect(
            since=(2, 3),
            options=_master,
            variables=_none,
            runs_programs=False,
            worker_log="{job}.*.{local}.log",
            cpu_ranks=1,
        ),
        Dialect(
            since=(2, 2),
            options=_ips_with_host,
            variables=_start_port,
            meets=False,
            runs_programs=False,
            equal_counts=True,
            cpu_nodes=1,
        ),
        Dialect(
            since=(2, 1),
            options=_ips,
            variables=_start_port,
            meets=False,
            runs_programs=False,
            equal_counts=True,
            cpu_nodes=1,
            address_from_name=True,
        ),
        # It has no --run_mode, and takes every word of the command line for a sign of the mode.
        Dialect(
            since=(2, 0),
            options=_ips_alone,
            variables=_start_port,
            meets=False,
            runs_programs=False,
            equal_counts=True,
            cpu_nodes=1,
            address_from_name=True,
            mode_from_words=True,
        ),
        Dialect(
            since=(1, 8),
            options=_cluster_node_ips,
            variables=_none,
            meets=False,
            runs_programs=False,
            equal_counts=True,
            cpu_nodes=0,
        ),
    )


def foreign() -> Dialect:
    """Stands for a launcher that is not PaddlePaddle's: a template of the user's names it and its options."""
    return Dialect(since=(0, 0), options=_nothing, variables=_none, meets=False)


def oldest() -> str:
    """The oldest release that can be launched."""
    return table()[-1].name


def for_version(version: str, host: str) -> Dialect:
    """The dialect of a PaddlePaddle version as its package metadata gives it ("3.3.1", "2.6.2.post120").

    Raises InputError, naming the host, for a version that cannot be started or that says nothing.
    """
    release = _release(version, host)
    found = next((entry for entry in table() if entry.since <= release), None)
    if found is None:
        raise InputError(
            f"host {host}: PaddlePaddle {version} cannot be launched: it is older than {oldest()}, the "
            "oldest release whose launcher clusterkit knows",
            f"install PaddlePaddle {oldest()} or newer on every host, or set `python` to an interpreter "
            "that has it",
        )
    return found


def takes_address_from_name(version: str) -> bool:
    """True where the launcher asks the resolver for its own address, and no option says another (2.0, 2.1).

    False for a version that cannot be launched.
    """
    try:
        return for_version(version, "").address_from_name
    except InputError:
        return False


# --- options ---------------------------------------------------------------------------------------


def _master(call: Call) -> tuple[str, ...]:
    """2.3 and newer.

    `--master` without `--nnodes` starts independent single-node jobs, and without `--rank` the node ranks are
    drawn by lot: all of them are always given.
    """
    return (
        *("--master", call.master, "--nnodes", str(len(call.node_ips)), "--rank", str(call.node_rank)),
        *("--host", call.node_ip, *_ranks(call, "--devices"), "--job_id", call.job_id),
        *("--log_dir", call.log_dir),
    )


def _ips_with_host(call: Call) -> tuple[str, ...]:
    """2.2: `--host` came with its elastic mode, and is the node's address in every mode."""
    return ("--ips", ",".join(call.node_ips), "--host", call.node_ip, *_since_2_1(call))


def _ips(call: Call) -> tuple[str, ...]:
    """2.1: a node is where the address of its own name stands in the list."""
    return ("--ips", ",".join(call.node_ips), *_since_2_1(call))


def _since_2_1(call: Call) -> tuple[str, ...]:
    """Without `--run_mode` a script's own `--workers` would be taken for parameter-server mode."""
    return ("--run_mode", "collective", *_ranks(call, "--gpus"), "--log_dir", call.log_dir)


def _ips_alone(call: Call) -> tuple[str, ...]:
    """2.0."""
    return ("--ips", ",".join(call.node_ips), *_ranks(call, "--gpus"), "--log_dir", call.log_dir)


def _cluster_node_ips(call: Call) -> tuple[str, ...]:
    """1.8. Without `--log_dir` there is no log at all."""
    return (
        *("--cluster_node_ips", ",".join(call.node_ips), "--node_ip", call.node_ip),
        *("--started_port", str(call.first_port), "--selected_gpus", _list(call.devices or ())),
        *("--log_dir", call.log_dir),
    )


def _ranks(call: Call, devices: str) -> tuple[str, ...]:
    if call.devices is not None:
        return (devices, _list(call.devices))
    return ("--nproc_per_node", str(call.processes))


def _list(devices: tuple[int, ...]) -> str:
    return ",".join(str(device) for device in devices)


def _servers_and_trainers(call: Call) -> tuple[str, ...]:
    """2.4 and newer: with all endpoints given, no launcher asks another one for anything."""
    return (
        *("--run_mode", "ps", "--servers", ",".join(call.servers), "--trainers", ",".join(call.trainers)),
        *("--host", call.node_ip, "--gloo_port", str(call.gloo_port)),
        *("--job_id", call.job_id, "--log_dir", call.log_dir),
    )


def _nothing(call: Call) -> tuple[str, ...]:
    return ()


# --- variables -------------------------------------------------------------------------------------


def _none(call: Call) -> Mapping[str, str]:
    return {}


def _start_port(call: Call) -> Mapping[str, str]:
    """2.0 to 2.2: rank i of every node listens on this port + i."""
    return {"FLAGS_START_PORT": str(call.first_port)}


# --- what cannot be --------------------------------------------------------------------------------

# 2.0 joins its whole command line with blanks and looks for these anywhere in it, the last word left out.
_MODE_WORDS = (
    *("--worker_num", "--server_num", "--heter_worker_num"),
    *("--servers", "--workers", "--heter_workers", "--http_port"),
)


def _refuse_mode_words(version: str, words: tuple[str, ...]) -> None:
    for word in words[:-1]:
        found = next((mode for mode in _MODE_WORDS if mode in word), None)
        if found:
            raise InputError(
                f"PaddlePaddle {version} would start in parameter-server mode: its launcher takes {word} of "
                f"the script for its own {found}",
                "rename the script's option, or use PaddlePaddle 2.1 or newer",
            )


def _refuse_servers(dialect: Dialect, version: str, call: Call) -> None:
    if dialect.server_options is None:
        raise InputError(
            f"PaddlePaddle {version} cannot be started with parameter servers: that takes 2.4 or newer",
            "use PaddlePaddle 2.4 to 2.6",
        )
    # It takes for its own every endpoint that begins with its address, and 127.0.0.1 wherever that stands.
    for ip in (*call.node_ips, "127.0.0.1"):
        other = next((each for each in call.node_ips if each != ip and each.startswith(ip)), None)
        if other:
            raise InputError(
                f"PaddlePaddle {version} cannot tell the servers of {ip} and {other} apart: its launcher "
                "goes by how an address begins",
                "give the nodes addresses of which none begins as another one (10.0.0.11 and 10.0.0.12)",
            )
    if "127.0.0.1" in call.node_ips and len(call.node_ips) > 1:
        raise InputError(
            f"PaddlePaddle {version} takes 127.0.0.1 for every node's own address",
            "let the nodes be 127.0.0.2 and up",
        )


def _nodes(count: int) -> str:
    return f"{count} node{'s'[: count != 1]}"


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
