"""Each launcher that this machine can have, started by the plan's own scripts: world, ranks, logs, arguments.

The script does not import Paddle: what is tested is the launcher. 1.8.5 numbers its ranks by GPUs; it starts
ranks for the devices that it is told without looking for them, so this needs none.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clusterkit import agent
from clusterkit.inventory.model import PortRange, Settings
from clusterkit.node import plan as node_plan
from clusterkit.node import ranks as node_ranks
from clusterkit.node.files import RunFiles
from clusterkit.planning import plan
from clusterkit.planning.environment import Wishes, firewall
from clusterkit.planning.places import Home
from clusterkit.planning.topology import Node, Topology

from .paddles import INSTALL_LIMIT_S, python_with_paddle

# An interpreter may have to be made first.
pytestmark = [pytest.mark.paddle, pytest.mark.timeout(INSTALL_LIMIT_S + 300)]

SCRIPT = """
import os, sys
names = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_CURRENT_ENDPOINT")
print(*(os.environ[name] for name in names), *sys.argv[1:], flush=True)
"""
ARGUMENTS = ("a b", "--workers", "4", "--master", "no", "--nnodes=9", "$HOME", "-u")


def free_window(size: int) -> PortRange:
    """Ports that nobody listens on, below those that the kernel gives away."""
    for first in range(15000 + os.getpid() % 5000, 30000, size):
        try:
            with ExitStack() as taken:
                for port in range(first, first + size):
                    taken.enter_context(socket.socket()).bind(("", port))
            return PortRange(first, first + size - 1)
        except OSError:
            continue
    raise AssertionError("no free ports")


def planned(folder: Path, python: str, version: str, devices: tuple[int, ...] | None) -> plan.Plan:
    """Two nodes with two ranks each on loopback, with everything staged that their scripts need."""
    window = free_window(26)
    nodes = tuple(
        Node(f"n{rank}", rank, f"127.0.0.{rank + 2}", "lo", (2 * rank, 2 * rank + 1), devices, python)
        for rank in range(2)
    )
    shares = tuple(PortRange(first, first + 11) for first in (window.first + 2, window.first + 14))
    topology = Topology(nodes, window, window.first, window.first + 1, shares)
    environments = {
        node.alias: firewall(
            topology, node, run_id="r1", login={"HOME": str(folder)}, declared={}, wishes=Wishes()
        )
        for node in nodes
    }
    members = [Settings(node.alias, node.node_ip, remote_dir=str(folder / "remote")) for node in nodes]
    versions = {node.alias: version for node in nodes}
    homes = {node.alias: Home(str(folder), os.getuid()) for node in nodes}
    request = plan.Request("show.py", ARGUMENTS, folder / "code", None)
    made = plan.make("r1", topology, members, environments, versions, homes, request)
    (folder / "code").mkdir()
    (folder / "code" / "show.py").write_text(SCRIPT)
    for node in made.nodes:
        run = Path(node.run_dir)
        Path(node.log_dir).mkdir(parents=True)
        (run / "ranks").mkdir()
        (run / "agent.pyz").write_bytes(agent.build())
        for name, text in node.files.items():
            (run / name).write_text(text)
    return made


def launch(made: plan.Plan) -> list[int]:
    """Start every node's script at once, with stdout leading nowhere, as supervisors do; their exit codes."""
    kept = {name: os.environ[name] for name in made.nodes[0].environment.keep if name in os.environ}
    running = []
    for node in made.nodes:
        with open(Path(node.log_dir) / "launcher.log", "wb") as log:
            command = ["sh", f"{node.run_dir}/node.sh"]
            running.append(
                subprocess.Popen(command, env=kept, cwd="/", stdout=subprocess.DEVNULL, stderr=log)
            )
    try:
        return [each.wait(150) for each in running]
    finally:
        for each in running:
            if each.poll() is None:
                each.kill()
                each.wait(60)


def found_logs(node: plan.NodePlan) -> dict[int, str]:
    """Global rank → log, looked for as a supervisor and `attach` do: by the rank table and the records."""
    _, run = node_plan.open_run(node.run_dir)
    files = RunFiles(node.run_dir, run.log_dir)
    return {
        rank: Path(node_ranks.find_log(run, files, local)).read_text() for local, rank in enumerate(run.ranks)
    }


@pytest.mark.parametrize(("version", "devices"), [("3.3.1", None), ("2.6.2", None), ("1.8.5", (0, 1))])
def test_the_right_world_in_the_right_order(
    version: str, devices: tuple[int, ...] | None, tmp_path: Path
) -> None:
    if version == "3.3.1":
        if importlib.util.find_spec("paddle") is None:
            pytest.skip("PaddlePaddle is not installed (extra: cpu)")
        python = sys.executable
    else:
        python = python_with_paddle(version)
    made = planned(tmp_path, python, version, devices)
    codes = launch(made)
    said = {rank: log for node in made.nodes for rank, log in found_logs(node).items()}
    launchers = [(Path(node.log_dir) / "launcher.log").read_text() for node in made.nodes]
    assert codes == [0, 0], launchers
    assert list(said) == [0, 1, 2, 3]
    words = {rank: log.split(" ", 3) for rank, log in said.items()}
    assert {rank: each[:2] for rank, each in words.items()} == {r: [str(r), "4"] for r in range(4)}
    assert {each[3] for each in words.values()} == {" ".join(ARGUMENTS) + "\n"}
    addresses = [each[2].split(":")[0] for each in words.values()]
    assert addresses == ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]
    ports = [int(each[2].split(":")[1]) for each in words.values()]
    assert all(any(port in window for window in made.topology.launcher_ports) for port in ports)


def records(node: plan.NodePlan) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((Path(node.run_dir) / "ranks").glob("*.json"))]


def test_a_world_other_than_planned_starts_no_script_of_1_8(tmp_path: Path) -> None:
    """1.8 tells a rank its global number alone, and that is enough to see that it is the wrong one."""
    made = planned(tmp_path, python_with_paddle("1.8.5"), "1.8.5", (0, 1))
    second = Path(made.nodes[1].run_dir) / "node.sh"
    second.write_text(second.read_text().replace("--node_ip 127.0.0.3", "--node_ip 127.0.0.2"))
    assert launch(made)[1] != 0
    failures = [record["failure"] for record in records(made.nodes[1])]
    assert {failure["kind"] for failure in failures if failure} == {"world size"}
    assert "planned is 2" in failures[0]["detail"]
