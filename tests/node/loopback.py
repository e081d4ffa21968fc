"""A run of several nodes on this machine's loopback addresses: real agents, a stand-in for the launcher."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from clusterkit import agent
from clusterkit.node import processes

FAKE = Path(__file__).with_name("fake_launcher.py")
State = dict[str, Any]
# A machine may be loaded: what must happen is waited for this many times longer than it should take.
_PATIENCE = 4.0


def wait_for(condition: Callable[[], Any], limit: float, what: str) -> Any:
    """The first true value of `condition`; `limit` seconds are for a machine that has nothing else to do."""
    end = time.monotonic() + _PATIENCE * limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {limit:g} s: {what}")


class Attached:
    """A controller's end of `start` or `attach`: everything that came, and a way to say something."""

    def __init__(self, arguments: Sequence[str], request: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.states: list[State] = []
        self.logs: dict[str, bytes] = {}
        self.frames: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.ended = False
        self.say(request)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def say(self, line: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        for line in stream:
            frame = json.loads(line)
            data = stream.read(frame["size"]) if "size" in frame else b""
            self.frames.append(frame)
            if frame["frame"] == "state":
                self.states.append(frame["state"])
            elif frame["frame"] == "log":
                attempt = frame["attempt"]
                name = f"{attempt}:{frame['file']}" if attempt else frame["file"]
                self.logs[name] = self.logs.get(name, b"") + data
            elif frame["frame"] == "error":
                self.errors.append(frame["message"])
            elif frame["frame"] == "end":
                self.ended = True

    @property
    def state(self) -> State:
        return self.states[-1] if self.states else {"state": "", "ranks": [], "peers": []}

    def wait_end(self, limit: float) -> State:
        """The last state, once the agent has said that there is no more."""
        wait_for(lambda: self.ended or not self._reader.is_alive(), limit, f"end of attach; {self.state}")
        assert self.ended, (self.errors, self.process.stderr and self.process.stderr.read())
        return self.state

    def close(self) -> None:
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class Cluster:
    """Run directories, plans and supervisors of `ranks_per_node` on 127.0.0.2, 127.0.0.3, …"""

    def __init__(
        self,
        root: Path,
        script: str,
        ranks_per_node: Sequence[int] = (2, 2),
        timeouts: dict[str, float] | None = None,
        launcher: dict[int, dict[str, Any]] | None = None,
        python: str = sys.executable,
        script_name: str = "train.sh",
        local: Path | None = None,
        restarts: int = 0,
        on_hang: str = "report",
    ) -> None:
        self.root = root
        self.python = python
        self.local = local
        self.on_hang = on_hang
        self.restarts = {"most": restarts, "wait": 0.2, "longest_wait": 0.3}
        self.run_id = "t-" + secrets.token_hex(4)
        self.timeouts = {"gate": 30, "join": 20, "node": 3, "grace": 3, **(timeouts or {})}
        self.world_size = sum(ranks_per_node)
        self.attached: list[Attached] = []
        self.names = [f"gpu{index:02d}" for index in range(len(ranks_per_node))]
        self.ips = [f"127.0.0.{index + 2}" for index in range(len(ranks_per_node))]
        starts = [sum(ranks_per_node[:index]) for index in range(len(ranks_per_node))]
        self.ranks = [list(range(start, start + n)) for start, n in zip(starts, ranks_per_node, strict=True)]
        self.port = free_port_window(self.ips)
        self.key = secrets.token_hex(32)
        self.workdir = root / "code"
        self.workdir.mkdir(parents=True, exist_ok=True)
        (self.workdir / script_name).write_text(script)
        (self.workdir / script_name).chmod(0o755)
        packed = agent.build()
        for node in range(len(self.names)):
            self._stage(node, packed, (launcher or {}).get(node, {}), str(self.workdir / script_name))

    def run_dir(self, node: int) -> Path:
        return self.root / self.names[node] / "runs" / self.run_id

    def records(self, node: int) -> Path:
        """Where the supervisor writes: the run's directory, or beside the logs on a local disk."""
        return self.run_dir(node) if self.local is None else self.local / self.names[node] / self.run_id

    def log(self, rank: int) -> Path:
        node = next(index for index, ranks in enumerate(self.ranks) if rank in ranks)
        return self.records(node) / "logs" / f"workerlog.{self.ranks[node].index(rank)}"

    def plan(self, node: int) -> dict[str, Any]:
        nodes = [
            {"alias": name, "node_ip": ip, "ranks": ranks}
            for name, ip, ranks in zip(self.names, self.ips, self.ranks, strict=True)
        ]
        return {
            "schema": 1,
            "run_id": self.run_id,
            "node_rank": node,
            **nodes[node],
            "world_size": self.world_size,
            "nodes": nodes,
            "channel_port": self.port,
            "master_port": self.port + 1,
            "port_window": [self.port, self.port + 3],
            "job_id": self.run_id,
            "workdir": str(self.workdir),
            "log_dir": str(self.records(node) / "logs"),
            "keep_environment": ["PATH", "HOME"],
            "timeouts": self.timeouts,
            "restarts": self.restarts,
            "on_hang": self.on_hang,
        }

    def node_script(self, node: int, options: dict[str, Any], script: str) -> str:
        plan = self.plan(node)
        known = {key: plan[key] for key in ("node_rank", "ranks", "world_size", "log_dir")}
        entry = [
            self.python,
            "-u",
            f"{self.run_dir(node)}/agent.pyz",
            "rank",
            str(self.run_dir(node)),
            script,
        ]
        words = [sys.executable, str(FAKE), json.dumps({**known, **options}), *entry, str(node)]
        master = f"{plan['nodes'][0]['node_ip']}:{plan['master_port']}"
        return f"export CLUSTERKIT_ATTEMPT=0 MASTER={master}\nexec {shlex.join(words)}\n"

    def _stage(self, node: int, packed: bytes, options: dict[str, Any], script: str) -> None:
        directory = self.run_dir(node)
        directory.mkdir(parents=True, mode=0o700)
        (self.records(node) / "logs").mkdir(parents=True)
        (directory / "agent.pyz").write_bytes(packed)
        (directory / "plan.json").write_text(json.dumps(self.plan(node)))
        (directory / "node.sh").write_text(self.node_script(node, options, script))
        (directory / "channel.key").write_text(self.key)
        (directory / "secrets.json").write_text(json.dumps({"TOKEN": "a secret"}))

    def agent(self, node: int, command: str, *arguments: str) -> list[str]:
        directory = str(self.run_dir(node))
        return [self.python, "-I", f"{directory}/agent.pyz", command, directory, *arguments]

    def start(self, node: int, **request: Any) -> Attached:
        return self._attached(self.agent(node, "start"), request)

    def attach(self, node: int, **request: Any) -> Attached:
        return self._attached(self.agent(node, "attach"), request)

    def _attached(self, arguments: list[str], request: dict[str, Any]) -> Attached:
        attached = Attached(arguments, {"wait": True, **request})
        self.attached.append(attached)
        return attached

    def start_all(self) -> list[Attached]:
        """Every node's supervisor runs and has joined node 0."""
        nodes = [
            self.start(node, follow={str(rank): {"offset": 0} for rank in self.ranks[node]})
            for node in range(len(self.names))
        ]
        wait_for(lambda: nodes[0].states, 10, "a first state of node 0")
        wait_for(lambda: all(peer["joined"] for peer in nodes[0].state["peers"]), 10, "all nodes joined")
        return nodes

    def go(self, limit: float = 10) -> list[Attached]:
        """Every rank of every node runs."""
        nodes = self.start_all()
        nodes[0].say({"command": "go"})
        wait_for(lambda: all(started(node.state) for node in nodes), limit, "all ranks have started")
        return nodes

    def state(self, node: int) -> State:
        text = subprocess.run(self.agent(node, "state"), stdout=subprocess.PIPE, check=False).stdout
        state: State = json.loads(text)
        return state

    def stop(self, node: int, grace: float = 1) -> dict[str, Any]:
        command = self.agent(node, "stop", "--grace", str(grace))
        text = subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout
        answer: dict[str, Any] = json.loads(text)
        return answer

    def left(self, node: int | None = None) -> dict[int, str]:
        """Everything that still carries the run's mark, found through /proc independently of the agent."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    words = (entry / "environ").read_bytes().split(b"\0")
                    here = node is None or f"CLUSTERKIT_NODE_RANK={node}".encode() in words
                    if f"CLUSTERKIT_RUN_ID={self.run_id}".encode() in words and here:
                        found[int(entry.name)] = (
                            (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                        )
        return found

    def clean_up(self) -> None:
        for attached in self.attached:
            attached.close()
        for node in range(len(self.names)):
            # The supervisor of a failed test, and everything under it.
            for _ in range(50):
                found = processes.of_run(self.run_id, node)
                if not found:
                    break
                for pid in found:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGCONT)
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)


def started(state: State) -> bool:
    return bool(state["ranks"]) and all(rank["started_at"] is not None for rank in state["ranks"])


def free_port_window(ips: Sequence[str], size: int = 4) -> int:
    """The first of `size` ports below the ephemeral range that nobody uses on these addresses now."""
    for _ in range(200):
        first = random.randrange(20000, 29000, size)
        if all(_is_free(ip, first + index) for ip in ips for index in range(size)):
            return first
    raise AssertionError("no free ports")


def _is_free(ip: str, port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((ip, port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def cluster(root: Path, script: str, *args: Any, **more: Any) -> Iterator[Cluster]:
    """A cluster that leaves nothing behind, whatever the test does."""
    made = Cluster(root, script, *args, **more)
    try:
        yield made
    finally:
        made.clean_up()
