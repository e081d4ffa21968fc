"""Recorded facts → the exact command that starts a node's container, one file a case."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterkit.errors import HostError, InputError
from clusterkit.inventory.model import Settings
from clusterkit.node import container as on_host
from clusterkit.planning import containers, plan
from clusterkit.planning.environment import Wishes, firewall
from clusterkit.planning.places import Home
from clusterkit.planning.topology import Node
from tests.facts.recorded import facts
from tests.test_plan import REQUEST, TOPOLOGY

FILES = sorted((Path(__file__).parent / "cases" / "containers").glob("*.json"))


def planned(case: Mapping[str, Any]) -> plan.NodePlan:
    """The one node of a case: settings of its host, recorded facts, and the host's devices that it uses."""
    settings = Settings(
        "gpu01", "10.0.0.1", **{key: _typed(value) for key, value in case["settings"].items()}
    )
    found = facts("gpu01", **{"container": "docker", "container_inside": "cpu", **case.get("facts", {})})
    ground = containers.ground(settings, found)
    assert ground is not None
    ground = replace(ground, inside=replace(ground.inside, **case.get("inside", {})))
    devices = tuple(case["devices"]) if case.get("devices") else None
    node = Node("gpu01", 0, "10.0.0.1", "eth1", (0, 1), devices, "python3")
    topology = replace(TOPOLOGY, nodes=(node,))
    login = containers.traps(ground)
    environment = firewall(
        topology,
        node,
        run_id="r1",
        login=login,
        declared=settings.env,
        wishes=Wishes(),
        checkpoint_dir=case.get("checkpoints", ""),
    )
    home = {"gpu01": Home("/home/train", 1000)}
    made = plan.make(
        "r1",
        topology,
        [settings],
        {"gpu01": environment},
        {"gpu01": "3.3.1"},
        home,
        REQUEST,
        {"gpu01": ground},
    )
    return made.nodes[0]


def _typed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_facts_become_a_command(file: Path) -> None:
    case = json.loads(file.read_text())
    node = planned(case)
    assert node.container is not None
    said = {
        "start": shlex.join(node.container.command),
        "command": shlex.join(node.command),
        "unset": list(node.container.unset),
        "passwd": node.files.get("passwd"),
    }
    if os.environ.get("WRITE_CASES"):
        file.write_text(json.dumps({**case, **said}, indent=2) + "\n")
    assert said == {key: case.get(key) for key in said}
    assert node.files["container.sh"].splitlines()[-1] == f"exec {shlex.join(node.container.command)}"
    assert json.loads(node.files["plan.json"])["container"]["name"] == node.container.name


def test_every_script_is_a_shell_script() -> None:
    for file in FILES:
        script = planned(json.loads(file.read_text())).files["container.sh"]
        assert subprocess.run(["sh", "-n"], input=script, text=True, timeout=10, check=False).returncode == 0


def test_inside_the_devices_are_numbered_from_zero_and_the_plan_has_the_hosts() -> None:
    case = {"settings": {"image": "train:1", "container_runtime": "docker"}, "devices": [5, 2]}
    node = planned({**case, "facts": {"container": "docker-gpu", "container_inside": "gpu"}})
    assert node.command[node.command.index("--devices") + 1] == "1,0"
    assert node.node.devices == (5, 2)
    assert node.environment.set["CLUSTERKIT_DEVICES"] == "5,2"
    shown = _plan_of(node).as_json()["nodes"][0]
    assert (shown["devices"], shown["container"]["name"]) == ([5, 2], "clusterkit-r1-gpu01")


@pytest.mark.parametrize(
    ("checkpoints", "volumes", "mounted"),
    [
        ("/home/train/.clusterkit/gpu01/code/proj-1a2b3c4d/checkpoints", [], False),
        ("/data/checkpoints", [], True),
        ("/data/checkpoints", ["/nfs:/data/"], False),
        ("/data/checkpoints", ["/nfs:/data/check:ro", "named:/other"], True),
    ],
    ids=["in the code", "elsewhere", "in a volume", "beside the volumes"],
)
def test_a_directory_of_checkpoints_is_mounted_unless_it_is_there_anyway(
    checkpoints: str, volumes: list[str], mounted: bool
) -> None:
    settings = {"image": "train:1", "container_runtime": "docker", "volumes": volumes}
    node = planned({"settings": settings, "checkpoints": checkpoints})
    assert node.container is not None
    assert (f"type=bind,source={checkpoints},target={checkpoints}" in node.container.command) is mounted
    assert (f"mkdir -p {checkpoints} ||" in node.files["container.sh"]) is mounted
    described = json.loads(node.files["plan.json"])["container"]
    assert described["checkpoints"] == (checkpoints if mounted else None)


def _plan_of(node: plan.NodePlan) -> plan.Plan:
    return plan.Plan("r1", replace(TOPOLOGY, nodes=(node.node,)), REQUEST, (node,))


def test_a_user_who_cannot_use_the_runs_files_is_refused() -> None:
    settings = {"image": "train:1", "container_runtime": "docker", "container_user": "paddle"}
    with pytest.raises(
        InputError, match="container_user=paddle is uid 1234 in the image, and the run's files"
    ):
        planned({"settings": settings, "inside": {"uid": 1234}})
    assert "--user paddle" in shlex.join(
        planned({"settings": settings, "inside": {"uid": 1000}}).files["container.sh"].split()
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"container": "docker-down"}, "docker does not answer"),
        ({"container": "docker-without-image"}, "train:1 is not on this host"),
        ({"container_inside": "no-answer"}, "a container of train:1 does not start"),
    ],
)
def test_what_is_missing_is_told(found: dict[str, str], words: str) -> None:
    settings = Settings("gpu01", "10.0.0.1", image="train:1", container_runtime="docker")
    with pytest.raises(HostError, match=words):
        containers.ground(settings, facts("gpu01", **{"container": "docker", **found}))
    assert containers.ground(Settings("gpu01", "10.0.0.1"), facts("gpu01")) is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            'docker: Error response from daemon: could not select device driver "" with capabilities: '
            "[[gpu]].\nSee 'docker run --help'.",
            "the container runtime has no NVIDIA runtime for --gpus: could not select device driver",
        ),
        (
            "docker: Error response from daemon: mkdir /var/lib/docker/overlay2/1a: no space left on device.",
            "the disk of the container runtime is full: mkdir",
        ),
        (
            "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker "
            "daemon running?"
            "\n\nRun 'docker run --help' for more information",
            "the Docker daemon is down: Cannot connect",
        ),
        (
            "docker: permission denied while trying to connect to the Docker daemon socket at unix:///var/run",
            "no permission to use Docker: permission denied",
        ),
        (
            "Unable to find image 'a@sha256:1' locally\ndocker: Error response from daemon: No such image: a",
            "the image is not on this host, `clusterkit preflight` pulls it: No such image: a",
        ),
        ("Error: something else", "its container did not start: something else"),
        ("", "its container did not start: docker said nothing"),
    ],
)
def test_why_a_container_did_not_start_is_one_line(said: str, words: str) -> None:
    line = on_host.why(said, ["docker"])
    assert line.startswith(words)
    assert "\n" not in line
