"""What a smoke test's end and its ranks' reports mean."""

from __future__ import annotations

from typing import Any

import pytest

from clusterkit.smoke import judge

ENDED = {"exit_code": 0, "state": "succeeded"}


def report(rank: int, world: int = 2, seconds: float = 0.02, correct: bool = True) -> dict[str, Any]:
    rate = (8 << 20) / seconds * 2 * (world - 1) / world
    return {
        "rank": rank,
        "world_size": world,
        "correct": correct,
        "device": "CPU",
        "bytes": 8 << 20,
        "seconds": seconds,
        "bus_bytes_per_s": rate,
    }


def test_the_slowest_rank_is_what_counts() -> None:
    made = judge(ENDED, {0: report(0), 1: report(1, seconds=0.04)}, 2)
    (found,) = made.findings
    assert found.status == "ok"
    assert found.detail == (
        "all-reduce of 8 MiB over 2 ranks (CPU): 40 ms, bus bandwidth 0.21 GB/s, sums right"
    )
    assert (made.world_size, made.seconds) == (2, 0.04)


@pytest.mark.parametrize(
    ("status", "reports", "said"),
    [
        (ENDED, {0: report(0)}, "ranks 1 did not report, though the job ended well"),
        (ENDED, {0: report(0, world=1), 1: report(1)}, "the world has 1 ranks, not 2"),
        (ENDED, {0: report(0), 1: report(1, correct=False)}, "the sum is wrong on ranks 1"),
        (
            {
                "exit_code": 1,
                "reason": "rank 1 on n2 ended with exit code 1",
                "root": {
                    "rank": 1,
                    "host": "n2",
                    "exit_code": 1,
                    "lines": ["Traceback", "ImportError: libgomp", ""],
                },
            },
            {},
            "rank 1 on n2 ended with exit code 1: ImportError: libgomp",
        ),
        ({"exit_code": 4, "reason": "node n2 is lost", "root": None}, {}, "node n2 is lost"),
        ({"exit_code": 1, "reason": "", "root": {}}, {}, "exit code 1"),
    ],
)
def test_every_other_end_is_a_failure(status: Any, reports: Any, said: str) -> None:
    made = judge(status, reports, 2)
    (found,) = made.findings
    assert (found.status, found.detail) == ("failed", said)
    assert made.seconds is None


def test_the_host_of_the_first_failure_is_named() -> None:
    status = {"exit_code": 1, "reason": "x", "root": {"host": "n2", "lines": []}}
    assert judge(status, {}, 2).findings[0].source == "n2"
