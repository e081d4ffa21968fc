"""A stand-in `nvidia-smi` for hosts without a GPU, and the file that says what it answers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from clusterkit.sandbox.files import File

# Where a real driver installs it, so that it hides a real one of this machine as well.
COMMAND = "/usr/bin/nvidia-smi"
PROGRAM = "/usr/lib/clusterkit-sandbox/nvidia_smi.py"
ANSWERS = "/etc/clusterkit-sandbox/gpus.json"
SOURCE = Path(__file__).with_name("nvidia_smi.py")


def files(host: str, count: int, python: str) -> tuple[File, ...]:
    """The stand-in and its answers for `count` GPUs; nothing for none."""
    if count == 0:
        return ()
    wrapper = f'#!/bin/sh\nexec {shlex.quote(python)} -I -S {PROGRAM} {ANSWERS} "$@"\n'
    return (
        File(PROGRAM, SOURCE.read_text()),
        File(COMMAND, wrapper, 0o755),
        File(ANSWERS, json.dumps(answers(host, count), indent=1) + "\n"),
    )


def answers(host: str, count: int) -> dict[str, Any]:
    """What the stand-in says of a host with `count` healthy, idle GPUs.

    A test changes the file on the host: fewer entries in `gpus` for a card that has fallen off the bus,
    `failure` (`{"exit_code": 18, "output": "…"}`) for a driver that does not answer, `hang_s` for one that
    never does.
    """
    return {
        "driver_version": "550.90.07",
        "cuda_version": "12.4",
        "hang_s": 0,
        "failure": None,
        "gpus": [_gpu(host, index) for index in range(count)],
        "compute_apps": [],
    }


def _gpu(host: str, index: int) -> dict[str, Any]:
    serial = int.from_bytes(host.encode()[-4:], "big")
    return {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3 (sandbox stand-in)",
        "uuid": f"GPU-{serial:08x}-0000-0000-0000-{index:012x}",
        "serial": f"{serial}{index:02d}",
        "pci.bus_id": f"00000000:{0x10 + index:02X}:00.0",
        "memory.total": 81559,
        "memory.used": 4,
        "memory.free": 81555,
        "utilization.gpu": 0,
        "utilization.memory": 0,
        "temperature.gpu": 31,
        "power.draw": 68.5,
        "power.limit": 700.0,
        "clocks.sm": 345,
        "clocks.mem": 2619,
        "persistence_mode": "Enabled",
        "compute_mode": "Default",
        "mig.mode.current": "Disabled",
        "ecc.mode.current": "Enabled",
        "ecc.errors.uncorrected.volatile.total": 0,
        "remapped_rows.pending": "No",
        "fabric.state": "Completed",
        "nvlink.count": 18,
        "nvlink.inactive": [],
        "pstate": "P0",
    }
