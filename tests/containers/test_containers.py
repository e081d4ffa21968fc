"""Training in containers: real Docker, a real registry, the real Paddle; what is killed, and what is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from clusterkit.sandbox.processes import HostProcess
from tests.containers.conftest import HOSTS, Contained
from tests.launchers.paddles import INSTALL_LIMIT_S, python_with_paddle
from tests.preflight import engines
from tests.preflight.faults import do, told

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(INSTALL_LIMIT_S + 600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "sparse.py"

CANARY = "canary-5d21c"


def of_run(contained: Contained, host: str, word: str) -> HostProcess:
    """The one process of a run on the host that has this word in its command line."""
    found = [
        process
        for process in contained.sandbox.processes(host)
        if word in process.argv and "CLUSTERKIT_RUN_ID" in process.environment
    ]
    assert len(found) == 1, [process.argv for process in found]
    return found[0]


def nothing_left(contained: Contained, hosts: tuple[str, ...] = HOSTS, limit: float = 30.0) -> bool:
    """True once no process of a run and no container is left on these hosts."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        containers = [name for host in hosts for name in contained.rig.containers(host)]
        if not containers and not [host for host, _ in contained.marked() if host in hosts]:
            return True
        time.sleep(0.2)
    return False


def test_two_hosts_with_two_ranks_train_in_one_image(contained: Contained) -> None:
    inventory = contained.inventory(env_GREETING="hello")
    planned = contained.run("launch", "--dry-run", "--json", inventory, "whoami.py")
    assert planned.code == 0, planned.err
    images = {node["container"]["image"] for node in json.loads(planned.out)["nodes"]}
    assert len(images) == 1
    assert re.fullmatch(r"\S+/train@sha256:[0-9a-f]{64}", images.pop())

    running = contained.start("launch", inventory, "whoami.py")
    running.until("all 2 nodes joined", 120)
    inspected = {host: told(contained.sandbox, host, "docker inspect $(docker ps -q)") for host in HOSTS}
    finished = running.wait(120)
    assert finished.code == 0, finished.err
    for rank in range(4):
        (line,) = [
            line for line in contained.run("logs", "--rank", str(rank)).out.splitlines() if line[:1] == "{"
        ]
        said = json.loads(line)
        assert said["sum"] == 10.0
        assert (said["contained"], said["proxies"], said["nnodes"]) == (True, [], "2")
        assert said["paddle"].startswith("/opt/packages/")
        assert said["shm"] == 2 << 30
        user = "root" if rank < 2 else "alice"
        own = (user, int(told(contained.sandbox, HOSTS[rank // 2], f"id --user {user}")))
        assert (said["user"], said["uid"]) == own
        assert said["name"] == own[0]
    for host in HOSTS:
        (found,) = json.loads(inspected[host])
        run_id = found["Config"]["Labels"]["clusterkit.run_id"]
        assert found["Name"] == f"/clusterkit-{run_id}-{host}"
        assert found["HostConfig"]["NetworkMode"] == "host"
        # The job's variables stand in a file of the login user's, not in what Docker shows to everybody.
        assert not [entry for entry in found["Config"]["Env"] if entry.startswith(("GREETING", "NCCL"))]
    assert "kept PADDLE_NNODES of node[01-02] out of the job" in finished.err
    assert nothing_left(contained)


def test_preflight_s_smoke_runs_in_the_image(contained: Contained) -> None:
    smoked = contained.run("preflight", contained.inventory(), "--yes", "--smoke", "--json", limit=240)
    said = json.loads(smoked.out)
    assert said["smoke"]["world_size"] == 4, smoked.out[-2000:]
    assert {each["status"] for each in said["between"] if each["name"] == "smoke"} == {"ok"}
    assert nothing_left(contained)


def test_a_rank_fails_and_no_secret_is_left_anywhere(contained: Contained) -> None:
    (contained.folder / "secrets.env").write_text(f"API_KEY={CANARY}\n")
    inventory = contained.inventory()
    launch = contained.start(
        *("launch", "--env-file", "secrets.env", inventory, "drill.py", "300", "--fail", "3:7:15")
    )
    for rank in range(4):
        launch.until(f"rank {rank} line 0", 120)
    for host in HOSTS:
        assert CANARY not in told(contained.sandbox, host, "docker inspect $(docker ps --all --quiet)")
        places = "/run /var/lib/docker/containers /var/lib/docker/overlay2/*/diff/etc"
        assert contained.sandbox.sh(host, f"grep -rlsI {CANARY} {places}").stdout == ""
        knows = [each for each in contained.sandbox.processes(host) if CANARY in str(each.environment)]
        assert len(knows) == 2
        assert all("drill.py" in " ".join(each.argv) for each in knows)
        assert not [each for each in contained.sandbox.processes(host) if CANARY in str(each.argv)]
    finished = launch.wait(120)
    assert finished.code == 7, finished.err
    assert "rank 3 on node02" in finished.last_line
    assert nothing_left(contained)
    for host in HOSTS:
        home = "/root" if host == "node01" else "/home/alice"
        search = f"grep -rls --include=secrets.json {CANARY} {home}/.clusterkit"
        assert contained.sandbox.sh(host, search).stdout == ""
    assert CANARY not in finished.out + finished.err


@pytest.mark.parametrize("host", HOSTS)
def test_a_container_is_killed(contained: Contained, host: str) -> None:
    launch = contained.training()
    do(contained.sandbox, host, "docker kill $(docker ps --quiet)")
    finished = launch.wait()
    assert finished.code == 1, finished.err
    assert f"the launcher on {host} failed: its container was killed" in finished.last_line
    assert nothing_left(contained)


def test_a_killed_container_and_the_job_resumes_in_another_one(contained: Contained) -> None:
    """From checkpoints in a directory that only the job's own option names; before, its ranks hang."""
    restarts = ("--max-restarts", "1", "--checkpoint-dir", "/var/tmp/checkpoints")
    hangs = ("--hang-timeout", "3", "--on-hang", "dump")
    launch = contained.start("launch", *restarts, *hangs, contained.inventory(), "resume.py")
    for rank in range(4):
        launch.until(f"rank {rank} saved", 120)
    launch.until("the job hangs: ranks 0-3", 60)
    for host, home in (("node01", "/root"), ("node02", "/home/alice")):
        stacks = f"{home}/.clusterkit/{host}/runs/*/ranks/[01].stacks"
        dumped = f"until [ $(cat {stacks} | grep -c resume.py) = 2 ]; do sleep 0.2; done"
        do(contained.sandbox, host, f"timeout 30 sh -c '{dumped}'")
    do(contained.sandbox, "node02", "docker kill $(docker ps --quiet)")
    launch.until("attempt 1 begins in 5 s, since the launcher on node02 failed: its container was killed", 60)
    finished = launch.wait(120)
    assert finished.code == 0, finished.err
    for rank in range(4):
        log = contained.run("logs", "--rank", str(rank)).out
        assert log == f"rank {rank} attempt 1 resumes from step 5\n"
        assert contained.run("logs", "--attempt", "0", "--rank", str(rank)).out == f"rank {rank} saved\n"
    assert nothing_left(contained)


def test_the_launcher_in_a_container_is_killed(contained: Contained) -> None:
    launch = contained.training()
    os.kill(of_run(contained, "node02", "paddle.distributed.launch").pid, signal.SIGKILL)
    finished = launch.wait()
    assert finished.code == 1, finished.err
    assert finished.last_line.endswith("the launcher on node02 failed: killed by signal 9")
    assert nothing_left(contained)


def test_whoever_watches_a_container_is_killed(contained: Contained) -> None:
    """The supervisor, and what stands for the launcher: the container ends without either."""
    launch = contained.training("--node-timeout", "5")
    for word in ("supervise", "contain"):
        os.kill(of_run(contained, "node02", word).pid, signal.SIGKILL)
    finished = launch.wait()
    assert finished.code == 4, finished.err
    assert nothing_left(contained)


def test_dockers_daemon_is_killed(contained: Contained) -> None:
    """The job goes on without it, and can be stopped; its record goes when the daemon is back."""
    launch = contained.training("--grace", "5")
    do(contained.sandbox, "node02", "kill -KILL $(cat /run/docker.pid) && rm -f /run/docker.pid")
    seen = len(launch.out)
    launch.until(r"rank 3 line [1-9]\d\d", 60)
    assert len(launch.out) > seen
    launch.send(signal.SIGINT)
    finished = launch.wait()
    assert finished.code == 130, finished.err
    assert contained.gone()
    engines.start_docker(contained.sandbox, "node02")
    assert nothing_left(contained)


def test_a_host_loses_its_power(contained: Contained) -> None:
    """The others stop; when it is back, nothing of the run is there, and nothing is in the next one's way."""
    launch = contained.training("--node-timeout", "5")
    contained.sandbox.kill("node02")
    try:
        finished = launch.wait()
        assert finished.code == 4, finished.err
        assert "node02" in finished.last_line
        assert nothing_left(contained, ("node01",))
    finally:
        powered_again(contained, "node02")
    assert nothing_left(contained)
    again = contained.run("launch", contained.inventory(), "whoami.py", limit=180)
    assert again.code == 0, again.err


def powered_again(contained: Contained, host: str) -> None:
    """The host is up, and so is its Docker."""
    contained.sandbox.start(host)
    do(contained.sandbox, host, "rm -f /run/docker.pid /run/docker/containerd/containerd.pid")
    engines.start_docker(contained.sandbox, host)


def test_ranks_that_ignore_sigterm_end_within_the_grace(contained: Contained) -> None:
    inventory = contained.inventory()
    launch = contained.start(
        "launch", "--grace", "3", inventory, "drill.py", "300", "--ignore-term", "--orphan"
    )
    launch.until("all 2 nodes joined", 120)
    launch.until("rank 3 line 1")
    stand = contained.run("stacks", "--json")
    assert [group["frames"][0]["file"] for group in json.loads(stand.out)["groups"]] == ["drill.py"], (
        stand.out
    )
    launch.send(signal.SIGTERM)
    finished = launch.wait()
    assert finished.code == 143, finished.err
    assert nothing_left(contained)


def test_what_is_wrong_is_told_in_one_line(contained: Contained) -> None:
    """Before anything starts: the daemon is down, the image is not there, a volume is not there."""
    missing = contained.run("launch", contained.inventory(volumes="/nowhere:/data"), "drill.py", "1")
    assert missing.code == 1, missing.err
    assert "there is no /nowhere on this host, which `volumes` mounts" in missing.err
    assert nothing_left(contained)
    other = contained.inventory(image=contained.rig.image.replace(":1", ":2"))
    for words in ((), ("--no-preflight",)):
        absent = contained.run("launch", *words, other, "drill.py", "1")
        assert absent.code == 3, absent.err
        assert "train:2 is not on this host" in absent.err
        assert "clusterkit preflight" in absent.err
    counts = ("--run-mode", "ps", "--servers", "1", "--trainers", "2")
    ps = contained.run("launch", *counts, contained.inventory(), "drill.py", "1")
    assert ps.code == 1, ps.err
    assert "node[01-02]: PaddlePaddle 3.3.1 was built without its parameter servers" in ps.err
    engines.stop_docker(contained.sandbox, "node02")
    try:
        down = contained.run("launch", contained.inventory(), "drill.py", "1")
    finally:
        engines.start_docker(contained.sandbox, "node02")
    assert down.code == 1, down.err
    assert "node02: container runtime failed: the Docker daemon is down" in down.err


def test_parameter_servers_in_containers(contained: Contained) -> None:
    """With a Paddle that has them; that of the other image is refused, see above."""
    python = python_with_paddle("2.6.2-cpu")
    shutil.copyfile(EXAMPLE, contained.folder / "sparse.py")
    inventory = contained.inventory(image=contained.rig.made("serve:1", python))
    counts = ("--run-mode", "ps", "--servers", "2", "--trainers", "3")
    finished = contained.run("launch", *counts, inventory, "sparse.py", "--steps", "20", limit=200)
    assert finished.code == 0, finished.err
    for number, host in enumerate(HOSTS):
        log = contained.run("logs", "--server", str(number)).out
        assert f"server {number}/2 serves\n" in log, host
    assert "trainer 2/3 done" in contained.run("logs", "--rank", "2").out
    assert nothing_left(contained)


def test_podman_runs_it_too(contained: Contained) -> None:
    sandbox, image = contained.sandbox, contained.rig.image
    location = image.partition("/")[0]
    registries = f'[[registry]]\nlocation = "{location}"\ninsecure = true\n'
    do(sandbox, "node01", "cat >/etc/containers/registries.conf", registries)
    pulled = sandbox.sh("node01", f"podman pull --quiet {image}", timeout=300)
    assert pulled.returncode == 0, pulled.stderr
    inventory = contained.inventory(container_runtime="podman")
    finished = contained.run("launch", "--limit", "node01", inventory, "whoami.py", limit=180)
    assert finished.code == 0, finished.err
    said = [json.loads(line.partition("] ")[2]) for line in finished.out.splitlines() if '"sum"' in line]
    assert [each["sum"] for each in said] == [3.0, 3.0]
    assert all(each["contained"] and not each["proxies"] for each in said)
    assert told(sandbox, "node01", "podman ps --all --quiet") == ""
    assert contained.gone()
