"""Real Docker, a real registry: pulled, equal everywhere, looked into, taken back; and what goes wrong."""

from __future__ import annotations

import base64
import json
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clusterkit import steps
from clusterkit.probes.container import pulled_tag
from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec, User
from tests.e2e.cluster import Cluster
from tests.preflight import engines, registries
from tests.preflight.faults import do, told
from tests.preflight.firewalls import differences
from tests.preflight.layers import layer

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]

HOSTS = ("node01", "node02", "node03", "node04")
# Logs in as a user who is not in Docker's group.
GUEST = "node03"
PODMAN = "node04"
# What depends on how many open files this machine allows.
NOT_OURS = {"container limits"}
TOPIC = {step.name for step in steps.ALL if ".container." in type(step).__module__} - NOT_OURS


class Rig:
    """Four hosts with Docker, and a registry on the first, which has the image `tiny:1`."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox = sandbox
        self.folder = folder
        self.registry = ""
        self._files = 0

    def prepare(self) -> None:
        """Once for all tests."""
        with ThreadPoolExecutor(len(HOSTS)) as pool:
            list(pool.map(lambda host: engines.start_docker(self.sandbox, host), HOSTS))
        self.registry = registries.start(self.sandbox, "node01")
        engines.import_image(self.sandbox, "node01", self.name("1"))
        engines.derive_image(self.sandbox, "node01", self.name("other"), self.name("1"), EXTRA="1")
        engines.derive_image(
            self.sandbox,
            "node01",
            self.name("traps"),
            self.name("1"),
            PADDLE_NNODES="1",
            HTTPS_PROXY="http://user:pass@10.0.0.9:3128",
            NCCL_VERSION="2.15.5",
            NCCL_DEBUG="INFO",
        )
        do(self.sandbox, "node01", f"docker push --quiet --all-tags {self.registry}/tiny")

    def name(self, tag: str) -> str:
        return f"{self.registry}/tiny:{tag}"

    def clean(self) -> None:
        """The hosts have no image but those that the registry was filled from, and no marks."""
        for host in HOSTS:
            kept = [self.name(tag) for tag in ("1", "other", "traps")] if host == "node01" else []
            for name in engines.images(self.sandbox, host):
                if name not in kept:
                    self.sandbox.sh(host, f"docker image rm --force {name}")

    def inventory(self, variables: Mapping[str, str], **of_host: str) -> Path:
        """The sandbox's inventory with these variables for all hosts, and words for single ones."""
        text = self.sandbox.inventory.read_text()
        hosts = [line for line in text.splitlines() if re.match(r"node\d\d ", line)]
        listed = of_host or dict.fromkeys(HOSTS, "")
        for line in hosts:
            alias = line.split()[0]
            text = text.replace(f"{line}\n", f"{line} {listed[alias]}\n" if alias in listed else "")
        written = "".join(f"{name}={value}\n" for name, value in variables.items())
        self._files += 1
        path = self.folder / f"inventory-{self._files}.ini"
        path.write_text(text.replace("[all:vars]\n", f"[all:vars]\n{written}"))
        return path


@dataclass(frozen=True)
class Said:
    """What a preflight ended with, and printed."""

    code: int
    document: Mapping[str, Any]

    def check(self, host: str, name: str) -> Mapping[str, Any]:
        checks: list[Mapping[str, Any]] = self.document["hosts"][host]["checks"]
        return next(each for each in checks if each["name"] == name)

    def statuses(self, name: str) -> dict[str, str]:
        return {
            host: each["status"]
            for host, found in self.document["hosts"].items()
            for each in found["checks"]
            if each["name"] == name
        }

    def wrong(self, host: str, of_all: bool = False) -> dict[str, str]:
        """The checks of this topic that are not as they should be; `of_all` those of all topics."""
        return {
            each["name"]: each["status"]
            for each in self.document["hosts"][host]["checks"]
            if each["status"] not in ("ok", "skipped")
            and (each["name"] in TOPIC or (of_all and each["name"] not in NOT_OURS))
        }


@pytest.fixture(scope="module")
def rig(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """Hosts with Docker that have run nothing yet."""
    reason = engines.missing()
    if reason:
        pytest.skip(reason)
    files = {
        "/etc/containers/registries.conf": '[[registry]]\nprefix = "*.invalid"\nlocation = "x.invalid"\n'
    }
    spec = SandboxSpec.of(4, name="pf-container", python=(sys.executable,), containers=True, files=files)
    made = Rig(make_sandbox(spec.with_host(GUEST, user=User("alice"))), tmp_path_factory.mktemp("container"))
    made.prepare()
    return made


@pytest.fixture
def preflight(rig: Rig, tmp_path: Path) -> Iterator[Callable[..., Said]]:
    """`preflight(inventory, *words)`; the hosts begin without images."""
    rig.clean()
    cluster = Cluster(rig.sandbox, tmp_path / "project")
    cluster.folder.mkdir()

    def run(inventory: Path, *words: str) -> Said:
        ended = cluster.run("preflight", str(inventory), "--json", *words, limit=240)
        assert ended.out, ended.err
        return Said(ended.code, json.loads(ended.out))

    yield run
    cluster.finish()


def reset(rig: Rig, inventory: Path, *words: str) -> int:
    cluster = Cluster(rig.sandbox, rig.folder)
    return cluster.run("reset", str(inventory), "--yes", *words, limit=120).code


def own_files(sandbox: Sandbox, host: str) -> str:
    """All files of a host but the runtimes' own stores."""
    return layer(sandbox, host, ("var/lib/docker", "var/lib/containers"))


def test_the_image_is_pulled_looked_into_and_taken_back(rig: Rig, preflight: Callable[..., Said]) -> None:
    sandbox, image = rig.sandbox, rig.name("1")
    inventory = rig.inventory({"image": image, "shm_size": "3g", "ansible_become": "true"})
    before = {host: engines.images(sandbox, host) for host in HOSTS}
    files = {host: own_files(sandbox, host) for host in HOSTS}

    said = preflight(inventory, "--check")
    assert said.code == 3
    assert said.statuses("image") == {"node01": "ok", **dict.fromkeys(HOSTS[1:], "pending")}
    assert {host: engines.images(sandbox, host) for host in HOSTS} == before
    assert told(sandbox, "node01", "docker ps --all --quiet") == ""
    assert {host: differences(files[host], own_files(sandbox, host)) for host in HOSTS} == {
        host: [] for host in HOSTS
    }

    said = preflight(inventory, "--yes")
    assert said.code == 0
    assert said.statuses("image") == {"node01": "ok", **dict.fromkeys(HOSTS[1:], "changed")}
    for name in ("container runtime", "same image", "image architecture", "container starts", "image paddle"):
        assert set(said.statuses(name).values()) == {"ok"}, name
    called = {host: said.check(host, "container runtime")["actual"]["called"] for host in HOSTS}
    assert called == {**dict.fromkeys(HOSTS, "docker"), GUEST: "sudo -n docker"}
    digests = {said.check(host, "same image")["actual"]["image"] for host in HOSTS}
    assert len(digests) == 1
    assert digests.pop().startswith("sha256:")
    assert said.check("node02", "image paddle")["actual"]["paddle"] == "2.6.2"
    assert said.check("node02", "container shared memory")["actual"]["size_gib"] == 3.0
    after = {host: engines.images(sandbox, host) for host in HOSTS}
    mark = f"clusterkit/pulled:{pulled_tag(image)}"
    for host in HOSTS[1:]:
        assert after[host] == dict.fromkeys(sorted((mark, image)), before["node01"][image])

    again = preflight(inventory, "--yes")
    assert (again.code, again.document["summary"].get("changed")) == (0, None)
    assert {host: engines.images(sandbox, host) for host in HOSTS} == after

    assert reset(rig, inventory) == 0
    assert {host: engines.images(sandbox, host) for host in HOSTS} == after
    # What somebody else calls the image by stays, and so does what was there before preflight.
    do(sandbox, "node02", f"docker tag {image} mine:1")
    assert reset(rig, inventory, "--images") == 0
    assert engines.images(sandbox, "node01") == before["node01"]
    assert engines.images(sandbox, "node02") == {"mine:1": before["node01"][image]}
    assert engines.images(sandbox, GUEST) == engines.images(sandbox, PODMAN) == {}
    assert {host: differences(files[host], own_files(sandbox, host)) for host in HOSTS} == {
        host: [] for host in HOSTS
    }


def test_hosts_get_the_image_that_most_have(rig: Rig, preflight: Callable[..., Said]) -> None:
    """A tag was moved between two pulls: the odd host is named, and gets what the others have."""
    sandbox, image, other = rig.sandbox, rig.name("1"), rig.name("other")
    inventory = rig.inventory({"image": image, "ansible_become": "true"})
    for host in (GUEST, PODMAN):
        do(sandbox, host, f"docker pull --quiet {image}")
    do(sandbox, "node02", f"docker pull --quiet {other} && docker tag {other} {image}")

    said = preflight(inventory, "--check")
    assert said.wrong("node02") == {"same image": "pending"}
    assert {host: said.wrong(host) for host in HOSTS if host != "node02"} == {
        host: {} for host in HOSTS if host != "node02"
    }
    pattern = rf"{re.escape(image)} is [0-9a-f]{{12}} here, and [0-9a-f]{{12}} on most hosts"
    assert re.fullmatch(pattern, said.check("node02", "same image")["message"])
    assert said.code == 3

    said = preflight(inventory, "--yes")
    assert (said.code, said.wrong("node02")) == (0, {"same image": "changed"})
    assert engines.images(sandbox, "node02")[image] == engines.images(sandbox, "node01")[image]


def test_of_two_hosts_that_differ_the_registry_decides(rig: Rig, preflight: Callable[..., Said]) -> None:
    sandbox, image, other = rig.sandbox, rig.name("1"), rig.name("other")
    do(sandbox, "node02", f"docker pull --quiet {image}")
    do(sandbox, PODMAN, f"docker pull --quiet {other} && docker tag {other} {image}")
    said = preflight(rig.inventory({"image": image}, node02="", node04=""), "--yes")
    assert (said.code, said.statuses("same image")) == (0, {"node02": "changed", "node04": "changed"})
    assert engines.images(sandbox, PODMAN)[image] == engines.images(sandbox, "node02")[image]


def test_an_image_is_pulled_by_its_digest(rig: Rig, preflight: Callable[..., Said]) -> None:
    shown = told(
        rig.sandbox, "node01", f"docker image inspect -f '{{{{index .RepoDigests 0}}}}' {rig.name('1')}"
    )
    inventory = rig.inventory({"image": shown.strip()}, node01="", node02="")
    said = preflight(inventory, "--yes")
    assert (said.code, said.statuses("image")) == (0, {"node01": "ok", "node02": "changed"})
    assert said.check("node02", "same image")["message"] == "named by its digest"
    assert preflight(inventory, "--yes").document["summary"].get("changed") is None
    assert reset(rig, inventory, "--images") == 0
    assert engines.images(rig.sandbox, "node02") == {}


def test_each_refusal_is_one_line(rig: Rig, preflight: Callable[..., Said]) -> None:
    """Four hosts, four registries that do not give the image: none keeps another host from its own answer."""
    with ExitStack() as stack:
        login = stack.enter_context(registries.refusing(rig.sandbox, registries.WantsLogin))
        limit = stack.enter_context(registries.refusing(rig.sandbox, registries.LimitsPulls))
        nobody = stack.enter_context(registries.silent(rig.sandbox))
        inventory = rig.inventory(
            {"ansible_become": "true"},
            node01=f"image={rig.name('missing')}",
            node02=f"image={limit}/tiny:1",
            node03=f"image={login}/tiny:1",
            node04=f"image={nobody}/tiny:1",
        )
        said = preflight(inventory, "--yes")
    assert said.code == 1
    assert said.statuses("image") == dict.fromkeys(HOSTS, "failed")
    told_by = {host: said.check(host, "image") for host in HOSTS}
    assert {host: each["message"] for host, each in told_by.items()} == {
        "node01": f"the registry {rig.registry} has no tiny:missing",
        "node02": f"the registry {limit} refuses more pulls for now (429, too many requests)",
        "node03": f"the registry {login} refuses the login",
        "node04": f"the registry {nobody} cannot be reached: no answer",
    }
    assert told_by["node03"]["hint"] == f"on node03: sudo -n docker login {login}"
    assert all(each["hint"] for each in told_by.values())
    for host in HOSTS:
        assert said.wrong(host) == {"image": "failed"}


_NOTED = """#!/bin/sh
{ tr '\\0' ' ' </proc/self/environ; echo; printf '%s\\n' "$*"; } >>/run/client.words
exec /usr/bin/docker "$@"
"""


@contextmanager
def private_registry(rig: Rig) -> Iterator[tuple[str, str]]:
    """An image in a registry that wants a login; each host but the first is logged in, as its people do it.

    node01 has a password that is wrong. The image's name, and what each login keeps in its file.
    """
    sandbox = rig.sandbox
    registry = registries.start_private(sandbox, "node01")
    image = f"{registry}/tiny:1"
    shown = base64.b64encode(f"{registries.READER}:{registries.PASSWORD}".encode()).decode()
    wrong = base64.b64encode(f"{registries.READER}:not-{registries.PASSWORD}".encode()).decode()
    login = f"login --username {registries.READER} --password-stdin {registry}"
    for host in ("node01", "node02", GUEST):
        # With sudo the login is root's.
        do(sandbox, host, f"HOME=/root docker {login}", stdin=registries.PASSWORD)
    insecure = f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n'
    do(sandbox, PODMAN, "cat >/etc/containers/registries.conf", insecure)
    do(sandbox, PODMAN, f"podman {login}", stdin=registries.PASSWORD)
    do(sandbox, "node01", f"docker tag {rig.name('1')} {image} && docker push --quiet {image}")
    do(sandbox, "node01", f"docker image rm {image} && sed -i s/{shown}/{wrong}/ /root/.docker/config.json")
    for host in HOSTS:
        do(sandbox, host, "cat >/usr/local/bin/docker; chmod 755 /usr/local/bin/docker", _NOTED)
        do(sandbox, host, ": >/run/client.words; chmod 666 /run/client.words")
    try:
        yield image, shown
    finally:
        for host in HOSTS:
            gone = "/usr/local/bin/docker /run/client.words /root/.docker /run/containers/0/auth.json"
            do(sandbox, host, f"rm -rf {gone}")


def test_a_private_registry_knows_the_hosts_own_login(rig: Rig, tmp_path: Path) -> None:
    """Docker's, root's by way of sudo, and Podman's; a wrong one is told. None leaves its file."""
    rig.clean()
    sandbox = rig.sandbox
    (tmp_path / "project").mkdir()
    cluster = Cluster(sandbox, tmp_path / "project")
    with private_registry(rig) as (image, shown):
        inventory = rig.inventory(
            {"image": image, "ansible_become": "true"},
            **{**dict.fromkeys(HOSTS, ""), PODMAN: "container_runtime=podman"},
        )
        secrets = (registries.PASSWORD, shown)
        before = {host: _having(sandbox, host, secrets) for host in HOSTS}
        ended = cluster.run("preflight", str(inventory), "--json", "--diff", "-v", "--yes", limit=240)
        after = {host: _having(sandbox, host, secrets) for host in HOSTS}
        words = {host: told(sandbox, host, "cat /run/client.words") for host in HOSTS}
        taken = reset(rig, inventory, "--images")
        left = [engines.images(sandbox, host) for host in HOSTS[1:]]
        left_by_podman = told(sandbox, PODMAN, "podman images --quiet")
    said = Said(ended.code, json.loads(ended.out))
    assert said.statuses("image") == {"node01": "failed", **dict.fromkeys(HOSTS[1:], "changed")}
    assert said.wrong("node01") == {"image": "failed"}
    assert [said.wrong(host) for host in HOSTS[1:]] == [{"image": "changed"}] * 3
    refused = said.check("node01", "image")
    registry = image.partition("/")[0]
    assert refused["message"] == f"the registry {registry} refuses the login"
    assert refused["hint"] == f"on node01: docker login {registry}"
    called = {host: said.check(host, "container runtime")["actual"]["called"] for host in HOSTS}
    assert called == {"node01": "docker", "node02": "docker", GUEST: "sudo -n docker", PODMAN: "podman"}
    # Nothing of a login gets to a command line, an environment, a file of ours or a line that is shown.
    assert all(f"pull {image}" in words[host] for host in HOSTS[:3])
    assert not [host for host in HOSTS if any(secret in words[host] for secret in secrets)]
    assert all(before[host] for host in HOSTS[1:])
    assert after == before
    ours = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name.startswith("out-") for path in ours)
    assert not [path for path in ours if any(secret in path.read_text() for secret in secrets)]
    assert (taken, left, left_by_podman) == (0, [{}] * 3, "")


def _having(sandbox: Sandbox, host: str, secrets: Iterable[str]) -> list[str]:
    """The host's files in which one of these stands."""
    patterns = " ".join(f"-e {secret}" for secret in secrets)
    where = "/root /home /etc /run /tmp /var/tmp /var/log /dev/shm"
    script = f"find {where} -xdev -type f -exec grep -lF {patterns} {{}} + 2>/dev/null || :"
    return sorted(told(sandbox, host, script).splitlines())


def test_what_is_wrong_inside_and_what_was_left_is_named(rig: Rig, preflight: Callable[..., Said]) -> None:
    """A container of a run that is over; an image in which no Python is found; one without Paddle."""
    sandbox, image = rig.sandbox, rig.name("1")
    engines.derive_image(sandbox, "node01", rig.name("lost"), image, PATH="/bin")
    engines.derive_image(sandbox, "node01", rig.name("bare"), image, PYTHONPATH="/nowhere")
    do(sandbox, "node01", f"docker push --quiet --all-tags {rig.registry}/tiny")
    label, sleeps = "--label clusterkit.run_id=20260101-120000-over", "import time; time.sleep(600)"
    started = f"docker run --detach --name over {label} --entrypoint python3 {image} -c '{sleeps}'"
    do(sandbox, "node02", f"docker pull --quiet {image} && {started}")
    inventory = rig.inventory(
        {"ansible_become": "true"},
        node01=f"image={image}",
        node02=f"image={image}",
        node03=f"image={rig.name('lost')}",
        node04=f"image={rig.name('bare')}",
    )
    try:
        said = preflight(inventory, "--yes")
    finally:
        do(sandbox, "node02", "docker rm --force over")
    assert said.code == 1
    pulled = {"image": "changed"}
    assert {host: said.wrong(host) for host in HOSTS} == {
        "node01": {},
        "node02": {"left-over containers": "failed"},
        "node03": {**pulled, "container starts": "failed"},
        "node04": {**pulled, "image paddle": "failed"},
    }
    found = said.check("node02", "left-over containers")
    assert found["message"].startswith("container over of run 20260101-120000-over is left (Up")
    assert found["hint"] == "if nobody needs them: docker rm -f over"
    assert "none of these runs in the image" in said.check("node03", "container starts")["message"]
    assert f"{rig.name('bare')} has no Paddle for" in said.check("node04", "image paddle")["message"]


def test_hosts_that_are_lost_during_a_pull(rig: Rig, preflight: Callable[..., Said]) -> None:
    """One is cut off, another loses its power: both are named, and the third gets its image."""
    sandbox = rig.sandbox
    with registries.silent(sandbox) as nobody, ThreadPoolExecutor(1) as pool:
        inventory = rig.inventory(
            {"ansible_become": "true"},
            node02=f"image={nobody}/tiny:1",
            node03=f"image={rig.name('1')}",
            node04=f"image={nobody}/tiny:1",
        )
        running = pool.submit(preflight, inventory, "--yes")
        try:
            for host in ("node02", "node04"):
                pulling_on(sandbox, host)
            sandbox.cut("node02")
            sandbox.kill("node04")
            said = running.result()
        finally:
            running.exception()
            sandbox.mend("node02")
            sandbox.start("node04")
            do(sandbox, "node04", "rm -f /run/docker.pid /run/docker/containerd/containerd.pid")
            engines.start_docker(sandbox, "node04")
    assert said.code == 4
    hosts = said.document["hosts"]
    assert {host: each["reachable"] for host, each in hosts.items()} == {
        "node02": False,
        "node03": True,
        "node04": False,
    }
    assert all(hosts[host]["error"].startswith(f"{host} (") for host in ("node02", "node04"))
    assert said.statuses("image") == {"node03": "changed"}


def pulling_on(sandbox: Sandbox, host: str) -> None:
    """Returns once a pull runs there."""
    end = time.monotonic() + 120
    while not any("pull" in process.argv for process in sandbox.processes(host)):
        assert time.monotonic() < end, f"nothing is pulled on {host}"
        time.sleep(0.1)


def test_a_closed_port_a_full_disk_a_stopped_daemon_and_a_stranger(
    rig: Rig, preflight: Callable[..., Said]
) -> None:
    sandbox = rig.sandbox
    closed = f"{sandbox.controller}:9"
    engines.stop_docker(sandbox, "node02")
    engines.stop_docker(sandbox, PODMAN)
    engines.start_docker(sandbox, PODMAN, size="24m")
    try:
        said = preflight(
            rig.inventory(
                {},
                node01=f"image={closed}/tiny:1",
                node02=f"image={rig.name('1')}",
                node03=f"image={rig.name('1')}",
                node04=f"image={rig.name('other')}",
            ),
            "--yes",
        )
        # Once it is known how large the image is, nobody tries what cannot be.
        known = preflight(rig.inventory({"image": rig.name("1")}, node01="", node04=""), "--yes")
    finally:
        engines.stop_docker(sandbox, PODMAN)
        do(sandbox, PODMAN, "umount /var/lib/docker")
        for host in ("node02", PODMAN):
            engines.start_docker(sandbox, host)
    assert said.check("node01", "image")["message"] == (
        f"the registry {closed} cannot be reached: connection refused"
    )
    assert said.wrong("node01") == {"image": "failed"}
    assert said.wrong("node02") == {"container runtime": "failed"}
    assert said.check("node02", "container runtime")["message"] == "the Docker daemon is down"
    assert said.wrong(GUEST) == {"container runtime": "failed"}
    stranger = said.check(GUEST, "container runtime")
    assert stranger["message"] == "alice may not use Docker"
    assert "usermod -aG docker alice" in stranger["hint"]
    assert said.wrong(PODMAN) == {"image space": "warning", "image": "failed"}
    full = said.check(PODMAN, "image")
    assert full["message"] == "the disk is full: tiny:other does not fit on /var/lib/docker"
    assert "docker system df" in full["hint"]
    assert known.wrong(PODMAN) == {"image space": "failed"}
    assert known.check(PODMAN, "image")["message"] == "there is no room for it: see image space"


def test_what_an_image_and_the_client_put_into_a_container_is_told(
    rig: Rig, preflight: Callable[..., Said]
) -> None:
    """Three faults, one host each, and a sound one: nothing else is wrong on any of them."""
    sandbox, image = rig.sandbox, rig.name("1")
    proxies = {"proxies": {"default": {"httpProxy": "http://user:secret@10.0.0.8:3128"}}}
    do(sandbox, "node02", "mkdir -p /root/.docker && cat >/root/.docker/config.json", json.dumps(proxies))
    try:
        said = preflight(
            rig.inventory(
                {"ansible_become": "true"},
                node01=f"image={rig.name('traps')} container_args=--ipc=host env_NCCL_DEBUG=WARN",
                node02=f"image={image}",
                node03=f"image={image} shm_size=64m",
                node04=f"image={image}",
            ),
            "--yes",
        )
    finally:
        do(sandbox, "node02", "rm -r /root/.docker")
    pulled = {"image": "changed"}
    assert {host: said.wrong(host, of_all=True) for host in HOSTS} == {
        "node01": {"image variables": "warning"},
        "node02": {**pulled, "image variables": "warning"},
        # 64 MB is what a data loader dies of.
        "node03": {**pulled, "container shared memory": "failed"},
        "node04": pulled,
    }
    of_image, of_client = (said.check(host, "image variables") for host in ("node01", "node02"))
    assert of_image["actual"] == {"image": ["HTTPS_PROXY", "PADDLE_NNODES"], "client": []}
    assert "PADDLE_NNODES (overrides the launcher's --nnodes)" in of_image["message"]
    assert of_client["actual"]["image"] == []
    assert set(of_client["actual"]["client"]) == {"HTTP_PROXY", "http_proxy"}
    assert "Docker's client (proxies of ~/.docker/config.json) adds HTTP_PROXY" in of_client["message"]
    assert "secret" not in json.dumps(said.document)
    assert "user:pass" not in json.dumps(said.document)
    memory = said.check(GUEST, "container shared memory")
    assert memory["message"].startswith("/dev/shm in the container has 0.06 GiB")
    assert [each for each in said.document["between"] if each["status"] not in ("ok", "skipped")] == []


def test_an_image_for_another_processor(rig: Rig, preflight: Callable[..., Said]) -> None:
    own, other = ("amd64", "arm64") if platform.machine() == "x86_64" else ("arm64", "amd64")
    image = rig.name("foreign")
    engines.load_image(rig.sandbox, "node02", image, other)
    inventory = rig.inventory(
        {"ansible_become": "true"}, node01=f"image={rig.name('1')}", node02=f"image={image}"
    )
    said = preflight(inventory, "--check")
    assert {host: said.wrong(host, of_all=True) for host in HOSTS[:2]} == {
        "node01": {},
        "node02": {"image architecture": "failed"},
    }
    found = said.check("node02", "image architecture")
    assert found["message"] == f"{image} is for {other}, the host is {own}"
    assert found["hint"].startswith(f"docker pull --platform linux/{own} {image}")


def test_limits_beyond_the_machines_own(rig: Rig, preflight: Callable[..., Said]) -> None:
    """Only CAP_SYS_RESOURCE gives a container more than the host has: it starts, or the limit is named."""
    sandbox, image = rig.sandbox, rig.name("1")
    limits = "s/^Max open files  *[^ ]*  *\\([0-9]*\\) .*/\\1/p"
    more = int(told(sandbox, "node02", f"sed -n '{limits}' /proc/1/limits")) + 1
    may = int(told(sandbox, "node02", "sed -n 's/^CapEff:\t//p' /proc/1/status"), 16) & 1 << 24
    inventory = rig.inventory(
        {"image": image, "ansible_become": "true"},
        node01="",
        node02=f"container_args=--ulimit=nofile={more}:{more}",
        node03="container_args=--ulimit=memlock=-1:-1",
    )
    said = preflight(inventory, "--yes")
    refused = {} if may else {"container starts": "failed"}
    assert {host: said.wrong(host, of_all=True) for host in HOSTS[:3]} == {
        "node01": {},
        "node02": {"image": "changed", **refused},
        "node03": {"image": "changed", **refused},
    }
    if may:
        assert said.check("node02", "container limits")["actual"]["open_files"] == more
        return
    words = f"a container of {image} does not start: the kernel refuses it {{}} beyond the host's own limit"
    hint = "write a lower --ulimit={} into container_args, or none; or raise it for the daemon"
    for host, what, limit in (("node02", "open files", "nofile"), ("node03", "locked memory", "memlock")):
        found = said.check(host, "container starts")
        assert found["message"] == f"{words.format(what)} (ulimit {limit})"
        assert found["hint"].startswith(hint.format(limit))


def test_podman_pulls_and_is_looked_into(rig: Rig, preflight: Callable[..., Said]) -> None:
    sandbox, image = rig.sandbox, rig.name("1")
    do(
        sandbox,
        PODMAN,
        "cat >/etc/containers/registries.conf",
        f'[[registry]]\nlocation = "{rig.registry}"\ninsecure = true\n',
    )
    inventory = rig.inventory({"image": image}, node01="", node04="container_runtime=podman")
    said = preflight(inventory, "--yes")
    assert said.code == 0, said.document
    assert said.statuses("image") == {"node01": "ok", "node04": "changed"}
    assert said.check("node04", "container runtime")["actual"]["called"] == "podman"
    assert said.statuses("same image") == {"node01": "ok", "node04": "ok"}
    assert said.check("node04", "image paddle")["actual"]["paddle"] == "2.6.2"
    assert said.check("node04", "container shared memory")["actual"]["size_gib"] == 8.0
    assert preflight(inventory, "--yes").document["summary"].get("changed") is None
    assert reset(rig, inventory, "--images") == 0
    assert told(sandbox, PODMAN, "podman images --quiet") == ""
