"""From the command to the first training step: clusterkit against the same job typed by hand over ssh.

    python -m tests.bench.first_step

By hand means: the launcher's command line on both hosts at once, one ssh each, with the code there already
and nothing checked. clusterkit reads and checks the hosts, compares the code, and lets all nodes start
together. Both on bare hosts and in containers; they take turns, and the best of each counts. Budget: 1.1
times by hand.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.containers.conftest import TRAPS, Rig
from tests.preflight import engines

BUDGET = 1.1
ROUNDS = 3
LIMIT_S = 180.0
MASTER_PORT = 29400
RANKS = 2
CODE = "/opt/by-hand"
# What a first step is: the model is there, all ranks have met, and a batch has gone through.
SCRIPT = """
import time
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
model = paddle.DataParallel(paddle.nn.Linear(8, 1))
optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())
loss = model(paddle.ones([4, 8])).mean()
loss.backward()
optimizer.step()
print("first step at", time.time(), flush=True)
"""


def main() -> None:
    """Print each figure and its ratio."""
    if os.geteuid() != 0 or sys.platform != "linux":
        print("first step: skipped, sandbox hosts need Linux and root")
        return
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        project.mkdir()
        (project / "job.py").write_text(SCRIPT)
        compare("bare hosts", project, sandbox(folder, "bare", containers=False), prepare=None)
        reason = engines.missing()
        if reason:
            print(f"first step in containers: skipped, {reason}")
        else:
            compare("containers", project, sandbox(folder, "image", containers=True), prepare=with_image)


def sandbox(folder: str, name: str, *, containers: bool) -> AbstractContextManager[Sandbox]:
    """Two fresh hosts."""
    os.environ["XDG_STATE_HOME"] = folder
    spec = SandboxSpec.of(2, name=f"bench-{name}", python=(sys.executable,), containers=containers)
    return Sandbox.up(spec, Path(folder) / f"{name}.ini")


def with_image(hosts: Sandbox) -> str:
    """An image with Paddle is on both hosts; its name."""
    rig = Rig(hosts)
    rig.prepare()
    text = re.sub(r"^(ansible_python_interpreter|python)=.*\n", "", hosts.inventory.read_text(), flags=re.M)
    hosts.inventory.write_text(text.replace("[all:vars]\n", f"[all:vars]\nimage={rig.image}\n"))
    return rig.image


def compare(
    where: str,
    project: Path,
    made: AbstractContextManager[Sandbox],
    prepare: Callable[[Sandbox], str] | None,
) -> None:
    """The same job by hand and by clusterkit, in turns."""
    with made as hosts:
        image = prepare(hosts) if prepare else ""
        for name in hosts.hosts:
            hosts.sh(name, f"mkdir -p {CODE}; cat > {CODE}/job.py", stdin=SCRIPT)
        by_clusterkit(hosts, project)  # The code is on the hosts from now on, as it is by hand.
        times = [(by_hand(hosts, image), by_clusterkit(hosts, project)) for _ in range(ROUNDS)]
    hand, ours = (min(each) for each in zip(*times, strict=True))
    print(
        f"first step on {where}, {2 * RANKS} ranks on 2 hosts and {os.cpu_count()} cores: "
        f"by hand {hand:.1f} s, clusterkit {ours:.1f} s, ratio {ours / hand:.2f} (budget {BUDGET})"
    )


def by_clusterkit(hosts: Sandbox, project: Path) -> float:
    """Seconds from `clusterkit launch` to the first step of the last rank."""
    clusterkit = [sys.executable, "-m", "clusterkit", "launch", str(hosts.inventory), "job.py"]
    begun = time.time()
    done = subprocess.run(
        clusterkit, cwd=project, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    return last_step(done.stdout) - begun


def by_hand(hosts: Sandbox, image: str) -> float:
    """Seconds from both ssh commands to the first step of the last rank."""
    with ExitStack() as open_files, tempfile.TemporaryDirectory() as folder:
        begun = time.time()
        running = []
        for node_rank, name in enumerate(hosts.hosts):
            log = open_files.enter_context(open(Path(folder) / name, "w"))
            command = ssh(hosts, name, typed(hosts, node_rank, image))
            running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        for each in running:
            each.wait(LIMIT_S)
        logs = [hosts.sh(name, f"cat {CODE}/logs/workerlog.*").stdout for name in hosts.hosts]
    assert not any(each.returncode for each in running), logs
    return last_step("".join(logs)) - begun


def typed(hosts: Sandbox, node_rank: int, image: str) -> str:
    """The command line of one node."""
    master, own = hosts.addresses(hosts.hosts[0])[0], hosts.addresses(hosts.hosts[node_rank])[0]
    options = ["--master", f"{master}:{MASTER_PORT}", "--nnodes", "2", "--rank", str(node_rank)]
    options += ["--host", own, "--nproc_per_node", str(RANKS), "--log_dir", f"{CODE}/logs"]
    launcher = ["-m", "paddle.distributed.launch", *options, "job.py"]
    if not image:
        return f"cd {CODE} && rm -rf logs && exec {shlex.join([sys.executable, *launcher])}"
    run = ["docker", "run", "--rm", "--network", "host", "--shm-size", "2g", "--volume", f"{CODE}:{CODE}"]
    for name in TRAPS:  # Who types has learned what this image brings along.
        run += ["--env", name]
    return f"rm -rf {CODE}/logs; exec {shlex.join([*run, '--workdir', CODE, image, 'python3', *launcher])}"


def ssh(hosts: Sandbox, name: str, command: str) -> Sequence[str]:
    """As a person would type it."""
    options = ["-i", str(hosts.private_key), "-o", f"UserKnownHostsFile={hosts.known_hosts}"]
    return ["ssh", *options, f"root@{hosts.addresses(name)[0]}", command]


def last_step(text: str) -> float:
    """When the slowest rank had done its step, in Unix seconds: all hosts have this machine's clock."""
    found = [float(at) for at in re.findall(r"first step at ([\d.]+)", text)]
    assert len(found) == 2 * RANKS, text
    return max(found)


if __name__ == "__main__":
    main()
