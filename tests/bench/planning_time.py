"""How long 256 recorded hosts take from their answers to a topology and every check's verdict.

    python -m tests.bench.planning_time

No assertion: the number depends on the machine. It should stay well under 2 s.
"""

from __future__ import annotations

import json
import time

from clusterkit.facts import Facts, Output
from clusterkit.inventory.model import Settings
from clusterkit.planning.topology import arrange
from clusterkit.steps import check, counts
from tests.facts.recorded import facts

HOSTS = 256


def recorded(number: int) -> Facts:
    """Host `number` with an address and a machine id of its own, and a busy port table."""
    ip = f"10.0.{number // 250}.{number % 250 + 1}"
    network = f"interface eth0 up yes 9000 25000\n2: eth0    inet {ip}/16 scope global eth0\n"
    me = "uid=1000\ngid=1000\nuser=train\nhome=/home/train\nhostname=h\nkernel=6\narchitecture=x86_64\n"
    said = {"version": [3, 11, 2], "paddle": None, "libgomp": True, "binds": {ip: ""}}
    said["paddle"] = {"distribution": "paddlepaddle-gpu", "version": "2.6.2", "cuda": "11.8"}
    listening = "".join(
        f"   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 0  1000        0 1\n"
        for port in range(30000 + number % 7, 32000, 40)
    )
    return facts(
        f"gpu{number:03}",
        network=Output(0, network),
        name=Output(0, f"gpu{number:03}\n{ip} STREAM gpu{number:03}\n"),
        host=Output(0, f"{me}machine_id={number:032x}\n"),
        python=Output(0, f"/usr/bin/python3\n{json.dumps(said)}\n"),
        listening=Output(0, listening),
    )


def main() -> None:
    """Print the seconds of each stage."""
    members = [Settings(f"gpu{number:03}", f"gpu{number:03}.example") for number in range(HOSTS)]
    began = time.perf_counter()
    found = {settings.alias: recorded(number) for number, settings in enumerate(members)}
    read = time.perf_counter()
    topology = arrange(members, found, "20260101-120000-ab12").topology
    planned = time.perf_counter()
    verdicts = check(members, found, topology)
    checked = time.perf_counter()
    print(f"{HOSTS} hosts, {topology.world_size} ranks, ports {topology.port_window}, {counts(verdicts)}")
    print(f"read {read - began:.2f} s, plan {planned - read:.2f} s, check {checked - planned:.2f} s")


if __name__ == "__main__":
    main()
