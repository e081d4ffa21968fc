"""The program that a host runs: over real sockets of this machine, by every Python that there is."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clusterkit.between import Options, peers, program, prove
from clusterkit.between.conversation import Conversation
from clusterkit.errors import CommandFailed, HostTimeout
from clusterkit.facts import Facts, Output, interpret
from clusterkit.inventory.model import PortRange, Settings
from clusterkit.probes import CONTAINER, PYTHON
from clusterkit.probes.container import ContainerFacts, Image, Runtime
from clusterkit.remote import Connections, ConnectOptions
from clusterkit.steps import Fleet
from tests.facts.recorded import facts

TOKEN = "feedc0ffee"


def pythons() -> list[str]:
    """This interpreter, and those of other versions from 3.6 on, on the PATH and where pyenv keeps them."""
    found = [sys.executable, *(shutil.which(f"python3.{minor}") for minor in range(6, 14))]
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found += [str(path) for path in sorted(kept.glob("3.*/bin/python3"))]
    return list(dict.fromkeys(path for path in found if path and runs(path)))


def runs(python: str) -> bool:
    """pyenv leaves names on the PATH that do not start."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


class Asked:
    """The program in a process of its own."""

    def __init__(self, python: str, cwd: Path) -> None:
        sent = program.build()
        self.process = subprocess.Popen(
            ["sh", "-c", program.script(python, len(sent))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "HOME": str(cwd), "TMPDIR": str(cwd)},
        )
        assert self.process.stdin is not None
        # A shell that has ended already takes nothing.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(sent)
            self.process.stdin.flush()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, "limit": 60, **arguments}).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode() if self.process.stderr else ""
        return dict(json.loads(line))

    def listen(self, ip: str, alias: str, ports: list[tuple[str, int, int]]) -> dict[str, Any]:
        return self.ask("listen", token=TOKEN, ip=ip, alias=alias, ports=ports)

    def connect(self, *targets: tuple[str, str, int, int], datagrams: Any = (), timeout: float = 3.0) -> Any:
        return self.ask("connect", targets=targets, datagrams=datagrams, timeout=timeout)


@contextmanager
def running(cwd: Path, python: str = sys.executable) -> Iterator[Asked]:
    asked = Asked(python, cwd)
    try:
        yield asked
        _, errors = asked.process.communicate(timeout=20)
        assert (asked.process.returncode, errors) == (0, b"")
    finally:
        asked.process.kill()
        asked.process.communicate()


@pytest.mark.parametrize("python", pythons())
def test_it_listens_connects_measures_and_leaves_nothing(python: str, tmp_path: Path) -> None:
    with running(tmp_path, python) as one, running(tmp_path) as other:
        here = one.listen("127.0.0.2", "a", [("any", 0, 0), ("low", 30000, 30063)])
        there = other.listen("127.0.0.3", "b", [("any", 0, 0)])
        assert not here["problems"]
        assert 30000 <= here["ports"]["low"] <= 30063
        port = there["ports"]["any"]
        answer: dict[str, Any] = one.connect(
            ("b", "127.0.0.3", port, 0),
            ("b", "127.0.0.3", port, 100_000),
            ("b", "127.0.0.3", 1, 0),
            datagrams=[["127.0.0.3", there["datagrams"], 9000]],
        )
        outcomes = [result["outcome"] for result in answer["results"]]
        assert outcomes == ["open", "open", "refused"]
        assert answer["results"][0]["round_trip_us"] > 0
        assert answer["results"][1]["mss"] > 500
        assert answer["datagrams"] == [{"small": True, "large": True, "error": ""}]
        back = other.connect(("a", "127.0.0.2", here["ports"]["any"], 0))
        assert back["results"][0]["outcome"] == "open"
        stream = one.ask("stream", ip="127.0.0.3", port=port, seconds=0.1)
        assert stream["bytes"] > 1_000_000
        assert 0.1 <= stream["seconds"] < 2
        assert isinstance(other.ask("half_open")["peers"], list)
    assert list(tmp_path.iterdir()) == [], "neither it nor its compiled parts are on the disk"


def test_a_python_that_is_not_there_or_too_old_is_said(tmp_path: Path) -> None:
    asked = Asked("/nowhere/python3", tmp_path)
    _, errors = asked.process.communicate(timeout=20)
    assert asked.process.returncode == 127
    assert errors == b"there is no /nowhere/python3\n"


def test_a_stranger_learns_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as one:
        port = one.listen("127.0.0.2", "a", [("any", 0, 0)])["ports"]["any"]
        for said in (b"wrong hello\n", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000, b"feedc0ffee\n"):
            with socket.create_connection(("127.0.0.2", port), 5) as sock:
                sock.sendall(said)
                with contextlib.suppress(ConnectionResetError):
                    assert sock.recv(100) == b""


def test_who_answers_under_another_name_is_a_stranger(tmp_path: Path) -> None:
    with running(tmp_path) as one, running(tmp_path) as other:
        one.listen("127.0.0.2", "a", [])
        port = other.listen("127.0.0.3", "c", [("any", 0, 0)])["ports"]["any"]
        (result,) = one.connect(("b", "127.0.0.3", port, 0))["results"]
        assert (result["outcome"], result["detail"]) == ("stranger", "c")


def test_somebody_who_only_accepts_has_stalled(tmp_path: Path) -> None:
    with running(tmp_path) as one, socket.create_server(("127.0.0.3", 0)) as silent:
        one.listen("127.0.0.2", "a", [])
        began = time.monotonic()
        targets = [("b", "127.0.0.3", silent.getsockname()[1], size) for size in (0, 100)]
        results = one.connect(*targets, timeout=0.5)["results"]
        assert [result["outcome"] for result in results] == ["stalled", "stalled"]
        assert time.monotonic() - began < 30


def test_more_targets_than_are_tried_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as one, running(tmp_path) as other:
        one.listen("127.0.0.2", "a", [])
        port = other.listen("127.0.0.3", "b", [("any", 0, 0)])["ports"]["any"]
        results = one.connect(*[("b", "127.0.0.3", port, 0)] * 1000, timeout=20)["results"]
        assert {result["outcome"] for result in results} == {"open"}
        assert len(results) == 1000


def test_a_range_without_a_free_port_is_a_problem_of_that_range(tmp_path: Path) -> None:
    with running(tmp_path) as one, socket.create_server(("127.0.0.2", 0)) as holder:
        taken = holder.getsockname()[1]
        answer = one.listen("127.0.0.2", "a", [("master", taken, taken), ("any", 0, 0)])
        assert answer["problems"] == {"master": "Address already in use"}
        assert "any" in answer["ports"]


def test_it_ends_itself_when_nobody_asks_any_more(tmp_path: Path) -> None:
    asked = Asked(sys.executable, tmp_path)
    try:
        asked.ask("listen", token=TOKEN, ip="127.0.0.2", alias="a", ports=[], limit=1)
        assert asked.process.wait(20) == -14
    finally:
        asked.process.kill()
        asked.process.communicate()


# --- through a Remote ------------------------------------------------------------------------------


def member(number: int, **settings: Any) -> Settings:
    alias = f"n{number}"
    return Settings(
        alias, alias, connection="local", python=sys.executable, node_ip=f"127.0.0.{number + 1}", **settings
    )


def local(*members: Settings) -> Fleet:
    """Nodes on this machine, with the facts that matter here."""
    network = Output(0, "interface lo unknown no 65536\n1: lo    inet 127.0.0.1/8 scope host lo\n")
    answer: Any = {"version": [3, 11, 2], "paddle": None, "libgomp": True, "binds": {}}
    python = Output(0, f"{sys.executable}\n{json.dumps(answer)}\n")
    gpus = Output(127, "")
    found: dict[str, Facts] = {
        each.alias: facts(each.alias, network=network, python=python, gpus=gpus) for each in members
    }
    return Fleet({each.alias: each for each in members}, found, None)


def proved(fleet: Fleet, **options: Any) -> tuple[Any, list[tuple[str, list[str]]]]:
    told: list[tuple[str, list[str]]] = []
    with Connections(ConnectOptions()) as connections:
        remotes = {alias: connections.to(settings) for alias, settings in fleet.members.items()}
        made = prove(
            fleet,
            list(fleet.members),
            remotes,
            Options(**options),
            lambda what, waiting: told.append((what, list(waiting))),
            threading.Event(),
        )
    return made, told


def test_local_nodes_are_proved_without_ssh() -> None:
    made, told = proved(local(member(1), member(2), member(3)), bandwidth=True, stream_s=0.05)
    assert {(found.name, found.status) for found in made.findings} >= {("connect", "ok")}
    assert not [found for found in made.findings if found.status in ("failed", "unknown")]
    assert len(made.round_trips) == 6
    assert made.bandwidth is not None
    assert len(made.bandwidth.rates) == 6
    assert ("connecting the hosts with each other", []) in told


def test_one_host_has_nobody_to_reach() -> None:
    made, _ = proved(local(member(1)))
    (found,) = made.findings
    assert (found.name, found.status) == ("connect", "skipped")


def test_a_host_that_cannot_run_it_is_named_and_the_others_are_proved() -> None:
    broken = local(member(1), member(2), member(3))
    answer = Output(127, "")
    unread = facts("n2", python=answer).failure(PYTHON)
    without = Facts("n2", {**broken.facts["n2"].values, "python": unread})
    members = {**broken.members, "n2": member(2)}
    members["n2"] = Settings(**{**vars(members["n2"]), "python": "/nowhere/python3"})
    made, _ = proved(Fleet(members, {**broken.facts, "n2": without}, None))
    failed = [found for found in made.findings if found.status == "failed"]
    assert [(found.name, found.source) for found in failed] == [("proof", "n2")]
    assert "there is no /nowhere/python3" in failed[0].detail
    assert "Python 3.6" in failed[0].hint
    (connect,) = (found for found in made.findings if found.name == "connect")
    assert connect.detail.startswith("2 ordered pairs")


def test_a_host_without_python_uses_its_image(tmp_path: Path) -> None:
    """The image's python3 on the host's network; a stand-in for docker runs it here."""
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/said\nshift 8\nexec {sys.executable} "$@"\n')
    docker.chmod(0o755)
    sent = program.build()
    process = subprocess.run(
        ["sh", "-c", program.script_in_image(["docker"], "train:1", len(sent))],
        input=sent,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, b"")
    words = (tmp_path / "said").read_text()
    assert words.startswith("run --rm -i --network host --entrypoint python3 train:1 -I ")


def test_a_silent_host_is_a_named_wait() -> None:
    with Connections(ConnectOptions()) as connections:
        remote = connections.to(member(1))
        talk = Conversation.begin(remote, "exec cat >/dev/null\n", b"")
        with pytest.raises(HostTimeout, match=r"the proof between the hosts: no|nothing came"):
            talk.ask("listen", 0.3)
        talk.close()
        talk = Conversation.begin(remote, "echo broken >&2; exit 3\n", b"")
        with pytest.raises(CommandFailed, match="cannot run here: broken"):
            talk.ask("listen", 10)
        talk.close()


def test_ports_lie_in_port_range_and_above_the_privileged_ones() -> None:
    fleet = local(member(1, port_range=PortRange(500, 40000)))
    wanted = {name: (first, last) for name, first, last in peers.ports(fleet, "n1")}
    assert wanted["low"] == (1024, 1088)
    assert wanted["high"] == (39936, 40000)
    assert wanted["ephemeral"] == (0, 0)


@pytest.mark.parametrize(
    ("python", "uses_image"),
    [
        (Output(127, ""), True),
        (Output(0, "/usr/bin/python3\nversion=3.5.2\n"), True),
        (Output(1, "", "Segmentation fault"), False),
    ],
)
def test_a_host_whose_python_cannot_run_it_uses_the_image_if_it_has_one(
    python: Output, uses_image: bool
) -> None:
    fleet = local(member(1, image="train:1"))
    image = Image("sha256:1", "", (), "amd64", 1, "", {})
    sudo = ("sudo", "-n", "docker")
    runtime = Runtime("docker", sudo, "27", "x86_64", "/", 1, 1, "systemd", False, (), True)
    unread = interpret("n1", {"python": python}, [PYTHON])
    for found, expected in (
        (ContainerFacts(runtime=runtime, image=image), sudo if uses_image else ()),
        (ContainerFacts(runtime=runtime), ()),
        (None, ()),
    ):
        values = {**fleet.facts["n1"].values, **unread, CONTAINER.name: found}
        (peer,) = peers.peers(Fleet(fleet.members, {"n1": Facts("n1", values)}, None), ["n1"])
        assert peer.runtime == expected
