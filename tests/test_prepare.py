"""What a launch says when its checks do not allow a start."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from clusterkit.errors import InputError
from clusterkit.inventory.model import Settings
from clusterkit.planning.roles import Role
from clusterkit.prepare import ChecksFailed, Order, prepare
from clusterkit.steps import Verdict

PORTS = [Verdict("gpu1", "ports", "failed"), Verdict("gpu2", "ports", "failed")]
IMAGE = [Verdict("gpu2", "image", "pending")]


@pytest.mark.parametrize(
    ("verdicts", "code", "message", "hint"),
    [
        (PORTS, 1, "2 checks failed on 2 hosts", "mend what is named above"),
        (IMAGE, 3, "1 change pending on 1 host", "`clusterkit preflight` makes what is pending"),
        (
            [*IMAGE, *PORTS],
            1,
            "2 checks failed on 2 hosts and 1 change pending on 1 host",
            "mend what is named above; `clusterkit preflight` makes what is pending",
        ),
    ],
    ids=["failed", "pending", "both"],
)
def test_why_nothing_was_started(verdicts: list[Verdict], code: int, message: str, hint: str) -> None:
    error = ChecksFailed(verdicts)
    assert error.exit_code == code
    assert error.message == f"{message}, so nothing was started"
    assert error.hint == f"{hint}; or use --no-preflight if you know better"


def test_parameter_servers_in_a_container_are_refused_before_any_host_is_asked() -> None:
    members = (
        Settings("cpu1", "10.0.0.1"),
        Settings("cpu2", "10.0.0.2", image="train:1", container_runtime="docker"),
    )
    roles = {"cpu1": Role(servers=1), "cpu2": Role(trainers=1)}
    order = Order(Path("i.ini"), members, "train.py", (), Path("/"), roles=roles)
    with pytest.raises(InputError, match=r"^cpu2: `image` is set, and parameter servers do not run"):
        prepare(order, {}, forks=1, cancel=threading.Event(), tell=lambda event: None)
