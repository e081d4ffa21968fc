"""What environment variables mean to a job: which pass, which override the launcher, which are proxies.

Source of the overriding names: the launcher's own `context/args_envs.py`, `context/node.py`,
`context/device.py` and `plugins/`, releases 2.3 to 3.3, and the cloud launcher of 1.8 to 2.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Override:
    """What a variable does to the launcher (`effect`, a verb phrase), and what to use in its place."""

    effect: str
    instead: str


def kept_names() -> tuple[str, ...]:
    """Names that pass from the login environment: who and where the user is, and where software is found.

    Nothing here tunes a job or holds a secret. `PYTHONPATH` passes since without it the launch would not find
    the PaddlePaddle that the check of the interpreter found.
    """
    return (
        *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *(f"LC_{part}" for part in _LOCALE),
        *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDNN_HOME"),
        *("PYTHONPATH", "PYTHONUSERBASE", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
        *("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    )


def is_proxy(name: str) -> bool:
    """True for `http_proxy`, `ALL_PROXY`, `NO_PROXY` and their kin, in any case."""
    return re.fullmatch(r"(http|https|all|ftp|socks|no|rsync|ws|wss)_proxy", name, re.IGNORECASE) is not None


def override(name: str) -> Override | None:
    """What this variable would do to the launcher, or None if it does nothing to it."""
    found = OVERRIDES.get(name)
    if (
        found is None
        and re.fullmatch(r"[A-Z0-9]+_VISIBLE_DEVICES", name)
        and name != "NVIDIA_VISIBLE_DEVICES"
    ):
        return OVERRIDES["CUDA_VISIBLE_DEVICES"]
    return found


_LOCALE = (
    *("ALL", "CTYPE", "NUMERIC", "TIME", "COLLATE", "MONETARY", "MESSAGES"),
    *("PAPER", "NAME", "ADDRESS", "TELEPHONE", "MEASUREMENT", "IDENTIFICATION"),
)

_DEVICES = "use `devices` in the inventory or --devices"
_PROCESSES = "use `nproc_per_node` in the inventory or --nproc-per-node"
_PORTS = "use `port_range` in the inventory"
_PLANNED = "the plan decides it: the order of hosts in the inventory, `node_ip` and `devices`"
_ADDRESS = "use `node_ip`, `network` or `interface` in the inventory"
_NODES = "choose the hosts in the inventory, or with --limit"
_RESTARTS = "use --max-restarts"
_NONE = "clusterkit has no option for it"
_SERVERS = "use --run-mode ps with --servers and --trainers"
_OWN = "clusterkit decides it for each run"


def _overrides() -> Mapping[str, Override]:
    flags = {
        "POD_IP": ("--host", _ADDRESS),
        "PADDLE_MASTER": ("--master", _PLANNED),
        "PADDLE_DEVICES": ("--devices", _DEVICES),
        "PADDLE_NNODES": ("--nnodes", _NODES),
        "PADDLE_RUN_MODE": ("--run_mode", "use --run-mode"),
        "PADDLE_LOG_LEVEL": ("--log_level", _NONE),
        "PADDLE_LOG_OVERWRITE": ("--log_overwrite", "every run has a fresh log directory"),
        "PADDLE_SORT_IP": ("--sort_ip", _PLANNED),
        "PADDLE_NPROC_PER_NODE": ("--nproc_per_node", _PROCESSES),
        "PADDLE_JOB_ID": ("--job_id", _OWN),
        "PADDLE_RANK": ("--rank", _PLANNED),
        "PADDLE_LOG_DIR": ("--log_dir", "use `remote_dir` in the inventory"),
        "PADDLE_MAX_RESTART": ("--max_restart", _RESTARTS),
        "PADDLE_ELASTIC_LEVEL": ("--elastic_level", _RESTARTS),
        "PADDLE_ELASTIC_TIMEOUT": ("--elastic_timeout", _RESTARTS),
        "PADDLE_SERVER_NUM": ("--server_num", _SERVERS),
        "PADDLE_TRAINER_NUM": ("--trainer_num", _SERVERS),
        "PADDLE_SERVERS_ENDPOINTS": ("--servers", _SERVERS),
        "PADDLE_TRAINERS_ENDPOINTS": ("--trainers", _SERVERS),
        "PADDLE_GLOO_PORT": ("--gloo_port", _NONE),
        "PADDLE_WITH_GLOO": ("--with_gloo", _NONE),
        "PADDLE_START_PORT": ("--start_port", _PORTS),
        "PADDLE_IPS": ("--ips", _PLANNED),
        "PADDLE_AUTO_PARALLEL_CONFIG": ("--auto_parallel_config", _NONE),
        "PADDLE_AUTO_CLUSTER": ("--auto_cluster_config", _NONE),
    }
    effects = {
        "PADDLE_TRAINER_ID": ("replaces the launcher's --rank without a word", _PLANNED),
        "PADDLE_TRAINER_ENDPOINTS": ("resets the launcher's --master and --nnodes", _PLANNED),
        "DISTRIBUTED_TRAINER_ENDPOINTS": ("resets the launcher's --master and --nnodes", _PLANNED),
        "PADDLE_LAUNCH_WITH_ARGS": ("makes the launcher forget its --master", _PLANNED),
        "PORT_RANGE": ("decides the ports of the launcher", _PORTS),
        "FLAGS_FIXED_PORT": ("moves the launcher out of the run's ports", _PORTS),
        "FLAGS_START_PORT": ("moves older launchers out of the run's ports", _PORTS),
        "CUDA_VISIBLE_DEVICES": ("renumbers the devices that the launcher's --devices names", _DEVICES),
        "ASCEND_RT_VISIBLE_DEVICES": ("renumbers the devices that the launcher's --devices names", _DEVICES),
    }
    per_rank = (
        *("PADDLE_CURRENT_ENDPOINT", "PADDLE_GLOBAL_RANK", "PADDLE_GLOBAL_SIZE", "PADDLE_LOCAL_RANK"),
        *(
            "PADDLE_LOCAL_SIZE",
            "PADDLE_RANK_IN_NODE",
            "PADDLE_BACKUP_ENV_PATH",
            "POD_NAME",
            "COLLECTIVE_MASTER_IP",
        ),
        *("TRAINING_ROLE", "PADDLE_TRAINING_ROLE", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_PSERVER_ID"),
        *("FLAGS_selected_gpus", "FLAGS_selected_xpus", "FLAGS_selected_npus", "FLAGS_selected_cpus"),
    )
    cloud = (
        *("PADDLE_TRAINERS", "PADDLE_TRAINERS_NUM", "PADDLE_PORT", "TRAINER_PORTS_NUM"),
        *("PADDLE_RUNNING_ENV", "PADDLE_RUNNING_PLATFORM"),
        *("PADDLE_ELASTIC_SERVER", "PADDLE_ELASTIC_JOB_ID", "PADDLE_ELASTIC_NP"),
    )
    return MappingProxyType(
        {
            **{
                name: Override(f"overrides the launcher's {flag}", instead)
                for name, (flag, instead) in flags.items()
            },
            **{name: Override(effect, instead) for name, (effect, instead) in effects.items()},
            **{
                name: Override("is what the launcher tells each rank about itself", _PLANNED)
                for name in per_rank
            },
            **{
                name: Override("makes the job believe that a cloud launcher started it", _PLANNED)
                for name in cloud
            },
        }
    )


OVERRIDES = _overrides()
