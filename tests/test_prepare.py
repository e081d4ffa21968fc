"""What a launch says when its checks do not allow a start."""

from __future__ import annotations

import pytest

from clusterkit.prepare import ChecksFailed
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
