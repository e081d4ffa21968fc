"""What the tests of shared storage have in common: the clients' inventory, and the commands."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from tests.e2e.cluster import Cluster, Finished
from tests.preflight import nfs
from tests.preflight.nfs import SERVER

ROOT = Path(__file__).parent.parent.parent
PATH = "/mnt/shared/data"


def needed() -> None:
    """What a server and its clients take is installed on this machine; else the test is skipped."""
    done = subprocess.run(
        [ROOT / "scripts" / "debian-packages", "the test of shared storage", *nfs.PACKAGES],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip(done.stderr.strip() or "there is no /dev/fuse")


class Storage:
    """The clients' inventory with one mount, and the commands."""

    def __init__(self, sandbox: Sandbox, folder: Path, server: str = "") -> None:
        folder.mkdir()
        (folder / "project").mkdir()
        self.sandbox = sandbox
        self.cluster = Cluster(sandbox, folder / "project")
        self.inventory = folder / "cluster.ini"
        self.clients = tuple(host for host in sandbox.hosts if host != SERVER)
        self.server = server or sandbox.addresses(SERVER)[0]
        self.declare("a")

    def declare(self, export: str, *, only: str = "", **variables: str) -> None:
        """Every client mounts this export; `only` that host does."""
        nfs_variables = f'nfs_source={self.server}:/{export} nfs_path={PATH} nfs_options="vers=3"'
        more = "".join(f" {name}={value}" for name, value in variables.items())
        lines = []
        for line in self.sandbox.inventory.read_text().splitlines():
            host = line.split(" ")[0]
            if host == SERVER:
                continue
            if host in self.clients and " " in line:
                there = nfs_variables if only in ("", host) else nfs_variables.replace(f":/{export}", ":/a")
                line = f"{line} {there}{more}"
            lines.append(line)
        self.inventory.write_text("\n".join(lines) + "\n")

    def preflight(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit code and document."""
        ended = self.cluster.run("preflight", str(self.inventory), "--json", *words, limit=240)
        assert ended.out, ended.err
        return ended.code, json.loads(ended.out)

    def reset(self) -> Finished:
        return self.cluster.run("reset", str(self.inventory), "--yes", limit=240)


def check(document: dict[str, Any], host: str, name: str) -> dict[str, Any]:
    return dict(next(each for each in document["hosts"][host]["checks"] if each["name"] == name))


def status(document: dict[str, Any], name: str) -> dict[str, str]:
    return {host: check(document, host, name)["status"] for host in document["hosts"]}
