"""Sandboxes for these tests: a state directory of their own, and names that nobody else here uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.sandbox import Sandbox, SandboxSpec, lifecycle
from tests.sandbox.naming import Make, unique


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine or user cannot run."""
    if sys.platform == "linux" and os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("hosts"):
            item.add_marker(pytest.mark.skip(reason="sandbox hosts need Linux and root"))


@pytest.fixture(scope="module")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty $XDG_STATE_HOME."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def make(
    state_home: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Make]:
    """`make(count, suffix, …)` brings a sandbox up; at the end of the module all of them are gone."""
    names = set()

    def up(count: int, suffix: str = "", *, spec: SandboxSpec | None = None, **every_host: object) -> Sandbox:
        spec = spec or SandboxSpec.of(count, name=unique(suffix), **every_host)  # type: ignore[arg-type]
        names.add(spec.name)
        return Sandbox.up(spec, tmp_path_factory.getbasetemp() / f"{spec.name}.ini")

    yield up
    for name in names:
        lifecycle.down(name, forget=True)
