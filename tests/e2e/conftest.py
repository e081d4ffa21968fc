"""Sandboxes that live as long as the session, one for each shape of cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import HostSpec, SandboxSpec
from tests.e2e.cluster import Cluster, clone_jobs


@pytest.fixture(scope="session")
def make_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[SandboxSpec], Sandbox]]:
    """Sandboxes that live until the end of the session; the same name is brought up once."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("sandbox hosts need Linux and root")
    made: dict[str, Sandbox] = {}

    def make(spec: SandboxSpec) -> Sandbox:
        if spec.name not in made:
            # Another process may run other files of these tests at the same time.
            own = replace(spec, name=f"{spec.name}-{os.getpid()}")
            made[spec.name] = Sandbox.up(own, tmp_path_factory.mktemp(spec.name) / "sandbox.ini")
        return made[spec.name]

    yield make
    for sandbox in made.values():
        sandbox.down(forget=True)


@pytest.fixture(scope="session")
def four(make_sandbox: Callable[[SandboxSpec], Sandbox]) -> Sandbox:
    """Four hosts with two ranks each, as a fresh Debian has them."""
    return make_sandbox(SandboxSpec.of(4, name="e2e-four", python=(sys.executable,)))


@pytest.fixture
def cluster(four: Sandbox, tmp_path: Path) -> Iterator[Cluster]:
    """The four hosts, all running, with no run on them."""
    yield from used_once(four, tmp_path)


@pytest.fixture
def three(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """Three hosts with two ranks each, all running, for what breaks: a rank, a host, a cable."""
    yield from used_once(
        make_sandbox(SandboxSpec.of(3, name="e2e-three", python=(sys.executable,))), tmp_path
    )


@pytest.fixture
def unequal(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Cluster]:
    """Three hosts with three, one and two ranks, all running."""
    hosts = tuple(HostSpec(f"node0{number}", nproc=count) for number, count in ((1, 3), (2, 1), (3, 2)))
    sandbox = make_sandbox(SandboxSpec(hosts, name="e2e-unequal", python=(sys.executable,)))
    yield from used_once(sandbox, tmp_path)


def used_once(sandbox: Sandbox, tmp_path: Path) -> Iterator[Cluster]:
    """A sandbox whose hosts all run, for one test: nothing that it started is left afterwards."""
    for host in sandbox.status():
        if host.condition == "cut":
            sandbox.mend(host.name)
        elif host.condition != "running":
            sandbox.start(host.name)
    cluster = Cluster(sandbox, clone_jobs(tmp_path / "project"))
    yield cluster
    cluster.finish()
