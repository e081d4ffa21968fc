"""The real launcher under our supervisors: two nodes of two ranks on loopback."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from .loopback import Cluster, cluster, wait_for

pytestmark = [
    pytest.mark.paddle,
    pytest.mark.skipif(importlib.util.find_spec("paddle") is None, reason="PaddlePaddle is not installed"),
]

# No import of paddle: what is tested here is the launcher.
SCRIPT = """
import os, sys, time
names = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_LOCAL_RANK", "CLUSTERKIT_RUN_ID", "TOKEN")
print(*(os.environ[name] for name in names), flush=True)
time.sleep(1)
if os.environ["PADDLE_TRAINER_ID"] == os.environ.get("FAILS"):
    sys.exit(7)
time.sleep(float(os.environ.get("SLEEPS", "0")))
"""


class PaddleCluster(Cluster):
    """Nodes whose node.sh starts Paddle's own launcher, as launch writes it."""

    def node_script(self, node: int, options: dict[str, Any], script: str) -> str:
        plan = self.plan(node)
        launcher = [
            *(self.python, "-u", "-m", "paddle.distributed.launch"),
            *("--master", f"{self.ips[0]}:{self.port + 1}", "--nnodes", str(len(self.ips))),
            *("--rank", str(node), "--host", self.ips[node], "--nproc_per_node", str(len(plan["ranks"]))),
            *("--job_id", self.run_id, "--log_dir", plan["log_dir"]),
            *(self.python, "-u", f"{self.run_dir(node)}/agent.pyz", "rank", str(self.run_dir(node)), script),
        ]
        exports = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in options.items())
        first = self.port + 10 + 20 * node
        return f"export PORT_RANGE={first}:{first + 19}\n{exports}exec {shlex.join(launcher)}\n"


def paddle_cluster(root: Path, **exports: str) -> PaddleCluster:
    return PaddleCluster(
        root,
        SCRIPT,
        timeouts={"join": 120, "grace": 8},
        launcher={0: exports, 1: exports},
        python=sys.executable,
        script_name="train.py",
    )


def test_a_run_under_the_real_launcher(tmp_path: Path) -> None:
    run = paddle_cluster(tmp_path)
    try:
        nodes = run.go(120)
        states = [node.wait_end(60) for node in nodes]
        for state in states:
            assert state["decision"]["outcome"] == "succeeded"
            assert state["launcher_exit"] == 0
        logs = {rank: log for node in nodes for rank, log in node.logs.items()}
        assert logs == {str(r): f"{r} 4 {r % 2} {run.run_id} a secret\n".encode() for r in range(4)}
        # The secret reached the ranks, and none of the files in which Paddle keeps environments.
        for path in tmp_path.rglob("*"):
            if path.is_file() and "workerlog" not in path.name and "logs" in path.parts:
                assert b"a secret" not in path.read_bytes(), path
        assert run.left() == {}
    finally:
        run.clean_up()


def test_a_failing_rank_under_the_real_launcher(tmp_path: Path) -> None:
    """The launcher of rank 3's node would exit 241, and the other node's would run on."""
    run = paddle_cluster(tmp_path, FAILS="3", SLEEPS="60")
    try:
        nodes = run.go(120)
        states = [node.wait_end(60) for node in nodes]
        for state in states:
            cause = state["decision"]["cause"]
            assert (cause["kind"], cause["rank"], cause["alias"], cause["exit_code"]) == (
                "rank",
                3,
                "gpu01",
                7,
            )
        ended = [rank["ended_at"] for state in states for rank in state["ranks"]]
        assert max(ended) - min(ended) < 5
        peers = next(state["peers"] for state in reversed(nodes[0].states) if state["peers"][0]["registered"])
        assert peers[0]["registered"] is True
        assert run.left() == {}
    finally:
        run.clean_up()


def test_node_0_says_which_launchers_have_registered(tmp_path: Path) -> None:
    with cluster(tmp_path, "#!/bin/sh\nsleep 30\n") as run:
        serve = (
            "import http.server, json\n"
            "class H(http.server.BaseHTTPRequestHandler):\n"
            "    def do_GET(self):\n"
            f"        body = json.dumps({{'/{run.run_id}/info/1': json.dumps({{'rank': 1}})}}).encode()\n"
            f"        self.send_response(200 if self.path == '/{run.run_id}/info' else 404)\n"
            "        self.end_headers()\n"
            "        self.wfile.write(body)\n"
            f"http.server.HTTPServer(('', {run.port + 1}), H).serve_forever()\n"
        )
        (run.workdir / "serve.py").write_text(serve)
        nodes = run.start_all()
        node_script = run.run_dir(0) / "node.sh"
        background = f"{shlex.join([sys.executable, str(run.workdir / 'serve.py')])} 2>/dev/null &\n"
        node_script.write_text(background + node_script.read_text())
        nodes[0].say({"command": "go"})
        wait_for(lambda: nodes[0].state["peers"][0]["registered"], 10, "node 1 has registered")
        assert json.loads(json.dumps(nodes[0].state["peers"][0]))["registered"] is True
