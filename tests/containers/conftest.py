"""Two hosts with real Docker, a real registry, and an image with the real Paddle in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec, User
from tests.containers import paddle_image
from tests.e2e.cluster import JOBS, Cluster, Running
from tests.e2e.conftest import make_sandbox
from tests.preflight import engines, registries
from tests.preflight.faults import told

__all__ = ["make_sandbox"]

HOSTS = ("node01", "node02")
# What an image may bring along, and a job must not see.
TRAPS = {"PADDLE_NNODES": "7", "HTTP_PROXY": "http://user:word@10.9.9.9:1"}


class Rig:
    """Root uses Docker on the first host, alice on the second, through sudo: she is not in its group."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.registry = self.image = ""

    def prepare(self) -> None:
        """The registry has the image, and so have both hosts."""
        with ThreadPoolExecutor(len(HOSTS)) as pool:
            list(pool.map(lambda host: engines.start_docker(self.sandbox, host), HOSTS))
        self.registry = registries.start(self.sandbox, "node01")
        self.image = self.made("train:1", sys.executable)

    def made(self, name: str, python: str) -> str:
        """The image of this name, with this interpreter's Paddle, is on both hosts; its whole name."""
        image = f"{self.registry}/{name}"
        where = "/var/lib/docker/paddle.tar"
        with open(f"/proc/{self.sandbox.init('node01').pid}/root{where}", "wb") as sink:
            subprocess.run([python, paddle_image.__file__], stdout=sink, timeout=300, check=True)
        variables = {**paddle_image.ENVIRONMENT, **TRAPS}
        changes = " ".join(f"--change 'ENV {name}={value}'" for name, value in variables.items())
        for host, script in (
            ("node01", f"docker import {changes} {where} {image} && rm {where}"),
            ("node01", f"docker push --quiet {image}"),
            ("node02", f"docker pull --quiet {image}"),
        ):
            done = self.sandbox.sh(host, script, timeout=600)
            assert done.returncode == 0, done.stderr
        return image

    def containers(self, host: str) -> list[str]:
        """The names of all containers there, running or not."""
        return told(self.sandbox, host, "docker ps --all --format '{{.Names}}'").split()


class Contained(Cluster):
    """The hosts for one test, with an inventory that names the image."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        super().__init__(rig.sandbox, folder)
        self.rig = rig

    def inventory(self, **variables: str) -> str:
        """The path of an inventory with these variables besides."""
        given = {"image": self.rig.image, "ansible_become": "true", "shm_size": "2g", **variables}
        written = "".join(f"{name}={value}\n" for name, value in given.items())
        text = re.sub(
            r"^(ansible_python_interpreter|python)=.*\n", "", self.sandbox.inventory.read_text(), flags=re.M
        )
        path = self.folder.parent / "inventory.ini"
        path.write_text(text.replace("[all:vars]\n", f"[all:vars]\n{written}"))
        return str(path)

    def training(self, *words: str) -> Running:
        """A launch of the drill whose ranks all run; `words` come before the inventory."""
        launch = self.start("launch", *words, self.inventory(), "drill.py", "120")
        launch.until("all 2 nodes joined", 120)
        return launch


@pytest.fixture(scope="session")
def rig(make_sandbox: Callable[[SandboxSpec], Sandbox]) -> Rig:
    """Made once: the image takes a minute."""
    reason = engines.missing()
    if reason:
        pytest.skip(reason)
    spec = SandboxSpec.of(2, name="contained", python=(sys.executable,), containers=True)
    made = Rig(make_sandbox(spec.with_host("node02", user=User("alice"))))
    made.prepare()
    return made


@pytest.fixture
def contained(rig: Rig, tmp_path: Path) -> Iterator[Contained]:
    """The rig, with nothing of a run on it before and after."""
    shutil.copytree(JOBS, tmp_path / "project")
    shutil.copytree(Path(__file__).parent / "jobs", tmp_path / "project", dirs_exist_ok=True)
    cluster = Contained(rig, tmp_path / "project")
    yield cluster
    cluster.finish()
    for host in HOSTS:
        rig.sandbox.sh(host, "docker ps --all --quiet | xargs --no-run-if-empty docker rm --force")
