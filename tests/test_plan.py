"""The plan: paths, exact commands, plan.json, what is shown, and that the real launcher takes it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import InputError
from clusterkit.inventory.model import PortRange, Secret, Settings
from clusterkit.planning import places, plan
from clusterkit.planning.environment import Wishes, firewall
from clusterkit.planning.places import Home
from clusterkit.planning.topology import Node, Topology

CASES = Path(__file__).parent / "cases" / "plan"
NODES = (
    Node("gpu01", 0, "10.0.0.1", "eth1", (0, 1), (0, 3), "python3"),
    Node("gpu02", 1, "10.0.0.2", "bond0", (2,), (1,), "/opt/venv/bin/python"),
    Node("cpu03", 2, "10.0.0.3", "eth0", (3, 4, 5), None, "python3"),
)
LAUNCHER_PORTS = (PortRange(29402, 29410), PortRange(29402, 29410), PortRange(29402, 29410))
TOPOLOGY = Topology(NODES, PortRange(29400, 29410), 29400, 29401, LAUNCHER_PORTS)
REQUEST = plan.Request(
    script="tools/train.py",
    arguments=("-c", "a b.yml", "--x=it's"),
    root=Path("/home/me/proj"),
    code="proj-1a2b3c4d",
)


def make(
    topology: Topology = TOPOLOGY,
    request: plan.Request = REQUEST,
    remote_dir: str = "~/.clusterkit",
    versions: dict[str, str] | None = None,
    home: Home | None = None,
    **wishes: Any,
) -> plan.Plan:
    members = [
        Settings(alias=node.alias, address=node.node_ip, remote_dir=remote_dir) for node in topology.nodes
    ]
    login = {"HOME": "/home/u", "PADDLE_NNODES": "1"}
    environments = {
        node.alias: firewall(
            topology,
            node,
            run_id="r1",
            login=login,
            declared={"A": f"of-{node.alias}"},
            wishes=Wishes(**wishes),
        )
        for node in topology.nodes
    }
    found = {node.alias: "3.3.1" for node in topology.nodes} | (versions or {})
    homes = {node.alias: home or Home("/home/u", 1000) for node in topology.nodes}
    return plan.make("r1", topology, members, environments, found, homes, request)


def test_the_exact_command_of_a_node_with_devices() -> None:
    first = make().nodes[0]
    run = "/home/u/.clusterkit/gpu01/runs/r1"
    assert list(first.command) == [
        *("python3", "-u", "-m", "paddle.distributed.launch", "--master", "10.0.0.1:29401", "--nnodes", "3"),
        *(
            "--rank",
            "0",
            "--host",
            "10.0.0.1",
            "--devices",
            "0,3",
            "--job_id",
            "r1",
            "--log_dir",
            f"{run}/logs",
        ),
        *("python3", "-u", f"{run}/agent.pyz", "rank", run, "tools/train.py", "-c", "a b.yml", "--x=it's"),
    ]
    assert shlex.split(first.command_text) == ["cd", first.workdir, "&&", "exec", *first.command]


def test_each_node_has_its_own_rank_address_interpreter_and_devices() -> None:
    _, second, third = make().nodes
    assert (
        second.command[0] == second.command[second.command.index("--log_dir") + 2] == "/opt/venv/bin/python"
    )
    assert " --rank 1 --host 10.0.0.2 --devices 1 " in shlex.join(second.command)
    assert " --rank 2 --host 10.0.0.3 --nproc_per_node 3 " in shlex.join(third.command)
    assert "--devices" not in third.command


def test_plan_json() -> None:
    second = make(request=replace(REQUEST, timeouts=plan.Timeouts(join=7, grace=9))).nodes[1]
    document = json.loads(second.files["plan.json"])
    keep = document.pop("keep_environment")
    assert {"PATH", "HOME"} <= set(keep)
    assert document == {
        "schema": 1,
        "run_id": "r1",
        "alias": "gpu02",
        "node_rank": 1,
        "node_ip": "10.0.0.2",
        "ranks": [2],
        "world_size": 6,
        "nodes": [
            {"alias": "gpu01", "node_ip": "10.0.0.1", "ranks": [0, 1]},
            {"alias": "gpu02", "node_ip": "10.0.0.2", "ranks": [2]},
            {"alias": "cpu03", "node_ip": "10.0.0.3", "ranks": [3, 4, 5]},
        ],
        "channel_port": 29400,
        "master_port": 29401,
        "port_window": [29400, 29410],
        "job_id": "r1",
        "workdir": "/home/u/.clusterkit/gpu02/code/proj-1a2b3c4d",
        "log_dir": "/home/u/.clusterkit/gpu02/runs/r1/logs",
        "timeouts": {"gate": 30, "join": 7, "node": 20, "grace": 9},
        "hold": {"owner": "", "devices": [1]},
    }


def test_node_sh_runs_the_command_with_the_environment() -> None:
    first = make().nodes[0]
    lines = first.files["node.sh"].splitlines()
    assert "export A=of-gpu01" in lines
    assert "export CLUSTERKIT_RUN_ID=r1" in lines
    assert lines[-2:] == [f"cd {first.workdir} || exit 1", "exec " + shlex.join(first.command)]


def test_paths_on_a_host() -> None:
    node = make(remote_dir="/data/ck/", home=Home("/root", 0)).nodes[0]
    assert node.run_dir == "/data/ck/gpu01/runs/r1"
    assert node.workdir == "/data/ck/gpu01/code/proj-1a2b3c4d"
    assert node.log_dir == "/data/ck/gpu01/runs/r1/logs"


def test_logs_are_on_a_local_disk_where_the_rest_is_on_the_network() -> None:
    node = make(home=Home("/nfs/u", 1234, remote_dir_on_network=True)).nodes[0]
    assert node.run_dir == "/nfs/u/.clusterkit/gpu01/runs/r1"
    assert node.log_dir == "/var/tmp/clusterkit-1234/gpu01/r1/logs"
    assert node.log_dir in node.command
    assert json.loads(node.files["plan.json"])["log_dir"] == node.log_dir


def test_without_sync_the_code_is_where_it_is_here() -> None:
    node = make(request=replace(REQUEST, code=None)).nodes[0]
    assert node.workdir == "/home/me/proj"
    assert "cd /home/me/proj || exit 1" in node.files["node.sh"]


@pytest.mark.parametrize("remote_dir", ["runs", "./runs", "~other/runs", ""])
def test_a_relative_remote_dir_is_refused(remote_dir: str) -> None:
    with pytest.raises(InputError, match=r"host gpu01: remote_dir=.* is not an absolute path"):
        make(remote_dir=remote_dir)


@pytest.mark.parametrize(
    "alias",
    [
        "gpu01",
        "gpu01.example.com",
        "a/b",
        "..",
        ".",
        "10.0.0.1",
        "[fe80::1]",
        "a b",
        "数据",
        "x" * 300,
        ".hidden",
        "-x",
    ],
)
def test_an_alias_is_one_safe_path_component(alias: str) -> None:
    name = places.file_name(alias)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name)
    assert len(name) <= 128
    assert (name == alias) is (alias in ("gpu01", "gpu01.example.com", "10.0.0.1"))


def test_two_aliases_never_share_a_directory() -> None:
    aliases = ["a/b", "a_b", "a b", ".a_b", "A/b"]
    assert len({places.file_name(alias) for alias in aliases}) == len(aliases)


@pytest.mark.parametrize("python", ["/opt/python.py", "/opt/x.pyxes"])
def test_an_interpreter_that_looks_like_a_script_is_refused(python: str) -> None:
    topology = replace(TOPOLOGY, nodes=(replace(NODES[0], python=python), *NODES[1:]))
    with pytest.raises(InputError, match="host gpu01: python="):
        make(topology)


def test_an_old_paddle_on_one_host_stops_everything() -> None:
    with pytest.raises(InputError, match=r"host gpu02: PaddlePaddle 2\.2\.2 cannot be launched"):
        make(versions={"gpu02": "2.2.2"})


def test_different_versions_are_a_warning() -> None:
    assert make().warnings == ()
    (warning,) = make(versions={"gpu02": "2.6.2"}).warnings
    assert "3.3.1 on gpu01, cpu03; 2.6.2 on gpu02" in warning


@pytest.mark.parametrize(
    ("script", "passed"),
    [
        ("train.py", "train.py"),
        ("-x.py", "./-x.py"),
        ("run.sh", "./run.sh"),
        ("a/run.sh", "a/run.sh"),
        ("/s/a.py", "/s/a.py"),
    ],
)
def test_how_the_script_is_named(script: str, passed: str) -> None:
    command = make(request=replace(REQUEST, script=script, arguments=())).nodes[0].command
    assert command[-1] == passed


@pytest.mark.parametrize("arguments", [("a\0b",), ("\udcff",)])
def test_an_argument_that_no_command_line_can_carry(arguments: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        make(request=replace(REQUEST, arguments=arguments))


def shown(show_env: bool) -> str:
    return make(given={"B": "secret-b"}, secrets={"TOKEN": Secret("secret-token")}).as_text(show_env)


@pytest.mark.parametrize("show_env", [False, True])
def test_what_dry_run_prints(show_env: bool) -> None:
    case = CASES / ("shown.txt" if show_env else "masked.txt")
    if os.environ.get("WRITE_CASES"):
        case.write_text(shown(show_env))
    assert shown(show_env) == case.read_text()


def test_values_are_masked_unless_asked_for() -> None:
    made = make(given={"B": "secret-b"}, secrets={"TOKEN": Secret("secret-token")})
    for text in (made.as_text(), json.dumps(made.as_json()), repr(made)):
        assert "secret-" not in text
        assert "of-gpu01" not in text
    for text in (made.as_text(True), json.dumps(made.as_json(True))):
        assert "secret-b" in text
        assert "of-gpu01" in text
        assert "secret-token" not in text
    assert all("secret-token" not in text for node in made.nodes for text in node.files.values())


def test_as_json_has_the_exact_command() -> None:
    made = make()
    document = json.loads(json.dumps(made.as_json()))
    assert document["schema"] == 1
    assert document["state"] == "planned"
    assert [node["host"] for node in document["nodes"]] == ["gpu01", "gpu02", "cpu03"]
    assert document["nodes"][0]["command"] == list(made.nodes[0].command)
    assert document["nodes"][0]["environment"]["removed"] == {
        "PADDLE_NNODES": "overrides the launcher's --nnodes"
    }
    assert document["nodes"][2]["devices"] is None


def test_written_files_are_private_and_complete(tmp_path: Path) -> None:
    made = make()
    (tmp_path / "out" / "gpu01").mkdir(parents=True)
    (tmp_path / "other").write_text("kept")
    (tmp_path / "out" / "gpu01" / "node.sh").symlink_to(tmp_path / "other")
    written = made.write(tmp_path / "out")
    assert sorted(path.relative_to(tmp_path / "out").as_posix() for path in written) == [
        *(
            "cpu03/node.sh",
            "cpu03/plan.json",
            "gpu01/node.sh",
            "gpu01/plan.json",
            "gpu02/node.sh",
            "gpu02/plan.json",
        )
    ]
    assert {stat.S_IMODE(path.lstat().st_mode) for path in written} == {0o600}
    assert (tmp_path / "out/gpu02/node.sh").read_text() == made.nodes[1].files["node.sh"]
    assert (tmp_path / "other").read_text() == "kept"
    assert made.write(tmp_path / "out") == written


def test_an_output_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        make().write(tmp_path / "file")


# What stands in for the agent: it records what the launcher made of its command line.
ENTRY = """
import json, os, sys
found = dict(os.environ, argv=sys.argv[1:], cwd=os.getcwd())
with open(os.path.join(sys.argv[2], "rank-%s.json" % found["PADDLE_RANK_IN_NODE"]), "w") as file:
    json.dump(found, file)
if sys.argv[3].endswith(".py"):
    os.execv(sys.executable, [sys.executable, "-u"] + sys.argv[3:])
"""
ALL_REDUCE = """
import paddle
import paddle.distributed as dist

dist.init_parallel_env()
value = paddle.to_tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
print("sum", int(value.numpy()[0]), flush=True)
"""
ARGUMENTS = ("a b", 'it\'s "q"', "--x=1", "--", "-5", "--master", "no", "--nnodes=9", "$HOME", "", "é", "-u")


def free_window(stack: ExitStack, size: int) -> PortRange:
    """A run of ports that nobody listens on, below those that the kernel gives away."""
    for first in range(21000 + os.getpid() % 5000, 30000, size):
        try:
            with ExitStack() as taken:
                for port in range(first, first + size):
                    taken.enter_context(socket.socket()).bind(("", port))
            return PortRange(first, first + size - 1)
        except OSError:
            continue
    raise AssertionError("no free ports")


def real_plan(tmp_path: Path, sizes: tuple[int, ...], script: str) -> plan.Plan:
    with ExitStack() as stack:
        window = free_window(stack, 2 + 8 * len(sizes))
    base = [window.first + 2 + 8 * index for index in range(len(sizes))]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    nodes = tuple(
        Node(
            f"n{rank}",
            rank,
            f"127.0.0.{rank + 2}",
            "lo",
            tuple(range(start, start + size)),
            None,
            sys.executable,
        )
        for rank, (start, size) in enumerate(zip(starts, sizes, strict=True))
    )
    topology = Topology(
        nodes, window, window.first, window.first + 1, tuple(PortRange(first, first + 7) for first in base)
    )
    request = plan.Request(script=script, arguments=ARGUMENTS, root=tmp_path / "code", code=None)
    made = make(topology, request, remote_dir=str(tmp_path / "remote"), home=Home(str(tmp_path), os.getuid()))
    (tmp_path / "code").mkdir()
    for node in made.nodes:
        Path(node.log_dir).mkdir(parents=True)
        (Path(node.run_dir) / "agent.pyz").write_text(ENTRY)
        (Path(node.run_dir) / "node.sh").write_text(node.files["node.sh"])
    return made


def launch(made: plan.Plan) -> list[int]:
    """Start every node's script at once; their exit codes, in order."""
    kept = {name: os.environ[name] for name in made.nodes[0].environment.keep if name in os.environ}
    running = []
    for node in made.nodes:
        with open(Path(node.run_dir) / "launcher.log", "wb") as log:
            running.append(
                subprocess.Popen(["sh", f"{node.run_dir}/node.sh"], env=kept, cwd="/", stdout=log, stderr=log)
            )
    try:
        return [each.wait(120) for each in running]
    finally:
        for each in running:
            if each.poll() is None:
                each.terminate()
                each.wait(60)


def ranks(made: plan.Plan) -> list[dict[str, Any]]:
    files = [
        Path(node.run_dir) / f"rank-{local}.json" for node in made.nodes for local in range(len(node.ranks))
    ]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.paddle
@pytest.mark.parametrize("sizes", [(2, 1), (1,), (2,)])
def test_the_real_launcher_takes_the_command(sizes: tuple[int, ...], tmp_path: Path) -> None:
    made = real_plan(tmp_path, sizes, "./no-script")
    codes = launch(made)
    logs = [(Path(node.run_dir) / "launcher.log").read_text() for node in made.nodes]
    assert codes == [0] * len(sizes), logs
    found = ranks(made)
    assert [rank["PADDLE_TRAINER_ID"] for rank in found] == [str(rank) for rank in range(sum(sizes))]
    assert {rank["PADDLE_TRAINERS_NUM"] for rank in found} == {str(sum(sizes))}
    assert {rank["cwd"] for rank in found} == {str(tmp_path / "code")}
    assert {rank["CLUSTERKIT_RUN_ID"] for rank in found} == {"r1"}
    assert found[0]["A"] == "of-n0"
    for node in made.nodes:
        local = json.loads((Path(node.run_dir) / "rank-0.json").read_text())
        assert local["argv"] == ["rank", node.run_dir, "./no-script", *ARGUMENTS]
    ports = {int(endpoint.split(":")[1]) for endpoint in found[0]["PADDLE_TRAINER_ENDPOINTS"].split(",")}
    assert all(any(port in window for window in made.topology.launcher_ports) for port in ports)


@pytest.mark.paddle
def test_gloo_reduces_over_the_loopback_interface_that_we_name(tmp_path: Path) -> None:
    made = real_plan(tmp_path, (2, 1), "reduce.py")
    (tmp_path / "code" / "reduce.py").write_text(ALL_REDUCE)
    assert "export GLOO_SOCKET_IFNAME=lo" in made.nodes[0].files["node.sh"]
    codes = launch(made)
    logs = {
        rank: (Path(node.log_dir) / f"workerlog.{local}").read_text()
        for node in made.nodes
        for local, rank in enumerate(node.ranks)
    }
    assert codes == [0, 0], logs
    assert all("sum 6\n" in text for text in logs.values())


def test_every_script_passes_shellcheck(tmp_path: Path) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    scripts = [str(path) for path in make(given={"X": "a $b `c`\nd"}).write(tmp_path) if path.suffix == ".sh"]
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout.decode()
