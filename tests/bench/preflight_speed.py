"""Preflight against its floor (bare Fabric) and its peers (Ansible, pyinfra), on the same hosts in one run.

    python -m tests.bench.preflight_speed [HOSTS]

Budgets, as ratios: facts and vote at most 2 times a bare Fabric fan-out of `true`, with the connect proof
3 times (all hosts share the processors of this machine, which makes what runs on them dearer than on
machines of their own); a first `preflight --yes` on hosts whose iptables drops by default, proof included,
20 times faster than the same checks in Ansible and 3 times faster than in pyinfra, which prove nothing. A
peer that is not installed (`make bench` installs both) or that fails gets no ratio, and that is said.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from clusterkit import between, inventory, preflight
from clusterkit.preflight import Target
from clusterkit.remote import Connections
from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec

OWN = "clusterkit"
# How many times as long as ours the first run of a peer takes at least.
BUDGETS = {"ansible": 20, "pyinfra": 3}
PEERS = Path(__file__).parent / "peers"
ROUNDS = 3
LIMIT_S = 900
DROP = """
iptables -P INPUT DROP
iptables -A INPUT -i lo -j ACCEPT
iptables -A INPUT -p tcp --dport 22 -j ACCEPT
iptables -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
"""


def main(count: int = 16) -> None:
    """Print each figure and its ratio."""
    if os.geteuid() != 0 or sys.platform != "linux":
        print("preflight speed: skipped, sandbox hosts need Linux and root")
        return
    with tempfile.TemporaryDirectory() as folder:
        reading(count, Path(folder))
        print(f"first run on {count} hosts:")
        runs = {}
        for name, command in first_runs().items():
            runs[name] = first_run(count, Path(folder), command)
            print(runs[name].line(name), flush=True)
        for line in ratios(runs):
            print(line)


@dataclass(frozen=True)
class Run:
    """How one command ended; `problem` says why its time does not count."""

    seconds: float = 0.0
    problem: str = ""

    def line(self, name: str) -> str:
        """For people."""
        return f"  {name}: {self.problem or f'{self.seconds:.1f} s'}"


def ratios(runs: Mapping[str, Run]) -> list[str]:
    """`PEER / clusterkit = N (budget B)` for each peer; why there is none where there is none."""
    lines = []
    for name, budget in BUDGETS.items():
        failed = next((f"{each} {runs[each].problem}" for each in (OWN, name) if runs[each].problem), "")
        ratio = "no ratio" if failed else f"{runs[name].seconds / runs[OWN].seconds:.1f}"
        line = f"  {name} / {OWN} = {ratio} (budget {budget})"
        lines.append(f"{line}: {failed}" if failed else line)
    return lines


def reading(count: int, folder: Path) -> None:
    """The floor, and what facts, vote and proof cost above it, taking turns.

    Without stand-ins for GPUs: they are Python programs, and would be measured instead.
    """
    with sandbox(count, folder, "floor", gpus=0) as hosts:
        times = [(seconds(lambda: floor(hosts)), *read(hosts), command(hosts)) for _ in range(ROUNDS)]
    bare, facts, proof, whole = (min(each) for each in zip(*times, strict=True))
    print(
        f"{count} hosts: bare Fabric {bare:.2f} s; facts and vote {facts:.2f} s, ratio {facts / bare:.2f} "
        f"(budget 2); with the connect proof {proof:.2f} s, ratio {proof / bare:.2f} (budget 3); "
        f"the command `preflight --check` from its start to its end {whole:.2f} s, ratio {whole / bare:.2f}"
    )


def sandbox(count: int, folder: Path, name: str, gpus: int) -> Sandbox:
    """Fresh hosts."""
    os.environ["XDG_STATE_HOME"] = str(folder)
    spec = SandboxSpec.of(count, name=f"bench-{name}", gpus=gpus, python=(sys.executable,))
    return Sandbox.up(spec, folder / f"{name}.ini")


def floor(hosts: Sandbox) -> None:
    """One connection and `true` on every host, as Fabric's documentation has it."""
    from fabric import Connection

    def one(name: str) -> None:
        key = {"key_filename": str(hosts.private_key)}
        with Connection(hosts.addresses(name)[0], user="root", connect_kwargs=key) as connection:
            connection.run("true", hide=True)

    with ThreadPoolExecutor(len(hosts.hosts)) as pool:
        list(pool.map(one, hosts.hosts))


def read(hosts: Sandbox) -> tuple[float, float]:
    """Seconds for facts and vote, and for the same with the connect proof."""
    listed = inventory.load(hosts.inventory)
    members = tuple(inventory.settings(listed, host)[0] for host in listed.hosts.values())
    target = Target(members, tuple(each.alias for each in members))
    cancel = threading.Event()
    begun = time.perf_counter()
    with Connections() as connections:
        remotes = {each.alias: connections.to(each) for each in members}
        found = preflight.read(target, remotes, 64, cancel, lambda what, waiting: None)
        between.vote(found.fleet)
        facts = time.perf_counter() - begun
        between.prove(
            found.fleet, target.hosts, remotes, between.Options(), lambda what, waiting: None, cancel
        )
    return facts, time.perf_counter() - begun


def command(hosts: Sandbox) -> float:
    """Seconds for what a person types: the program's start, the reading, the proofs and the report."""
    words = [sys.executable, "-m", "clusterkit", "preflight", "--check", str(hosts.inventory)]
    # Whatever it says of these hosts: all of it was looked at.
    return seconds(lambda: subprocess.run(words, capture_output=True, timeout=900, check=False))


def first_runs() -> dict[str, list[str]]:
    """The commands that are compared, [] for a peer that is missing; words in capitals are filled in."""
    runs = {
        OWN: [sys.executable, "-m", "clusterkit", "preflight", "--yes", "INVENTORY"],
        **{name: [] for name in BUDGETS},
    }
    if ansible := shutil.which("ansible-playbook", path=path()):
        network = ["-e", "training_network=NETWORK"]
        runs["ansible"] = [ansible, "-f", "16", "-i", "INVENTORY", *network, str(PEERS / "preflight.yml")]
    if pyinfra := shutil.which("pyinfra", path=path()):
        runs["pyinfra"] = [
            pyinfra,
            "-y",
            "--user",
            "root",
            "--key",
            "KEY",
            "--data",
            "ssh_known_hosts_file=KNOWN",
            "ADDRESSES",
            str(PEERS / "deploy.py"),
        ]
    return runs


def path() -> str:
    """Where the peers may be: beside this interpreter, then PATH."""
    return f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"


def first_run(count: int, folder: Path, command: list[str]) -> Run:
    """One command on hosts that nobody has touched before."""
    if not command:
        return Run(problem="not installed")
    with sandbox(count, folder, "first", gpus=8) as hosts:
        for name in hosts.hosts:
            hosts.sh(name, DROP)
        # A Paddle for the CPU is no fault where no GPU is to be used; the GPUs are looked at all the same.
        listed = hosts.inventory.read_text()
        hosts.inventory.write_text(
            listed.replace("[all:vars]\n", "[all:vars]\nnproc_per_node=1\ngpu_count=8\n")
        )
        known = folder / "known_hosts"
        known.write_text("")
        network = hosts.addresses(hosts.hosts[0])[0].rsplit(".", 1)[0] + ".0/24"
        fillings = {
            "INVENTORY": str(hosts.inventory),
            "training_network=NETWORK": f"training_network={network}",
            "KEY": str(hosts.private_key),
            "ssh_known_hosts_file=KNOWN": f"ssh_known_hosts_file={known}",
            "ADDRESSES": ",".join(hosts.addresses(name)[0] for name in hosts.hosts),
        }
        words = [fillings.get(word, word) for word in command]
        env = {**os.environ, "TRAINING_NETWORK": network, "ANSIBLE_HOST_KEY_CHECKING": "False"}
        return run(words, env)


def run(command: list[str], env: dict[str, str]) -> Run:
    """Run it to its end; what it said is shown if it failed."""
    begun = time.perf_counter()
    try:
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Run(problem=f"did not end within {LIMIT_S} s")
    took = time.perf_counter() - begun
    if ended.returncode == 0:
        return Run(took)
    print(f"{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return Run(took, f"failed (exit code {ended.returncode}, {took:.1f} s)")


def seconds(work: Callable[[], object]) -> float:
    """Wall time."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
