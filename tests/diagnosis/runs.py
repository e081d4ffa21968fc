"""A run of three nodes with two ranks each that failed, as its record has it: built, not played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.runs.status import Observed, document

RUN_ID = "20261130-213826-k3fz"
# 2026-11-30 21:40:00 UTC
AT = 1796074800.0

NODES = tuple(
    NodeRecord(
        f"gpu0{n + 1}", n, f"10.0.0.{11 + n}", (2 * n, 2 * n + 1), "python3", "/r", "/w", "/l",
        {"address": "127.0.0.1", "port": 1, "user": "nobody"}, clock_offset_s=0.5 * n,
    )
    for n in range(3)
)  # fmt: skip
RECORD = RunRecord(RUN_ID, "/none/inventory.ini", "train.py", (), AT - 100, NODES)

FOLLOWED = (
    "RuntimeError: [/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer\n"
)


def ended(**more: Any) -> dict[str, Any]:
    """A rank's own entry in its node's state: it ended well at AT unless `more` says otherwise."""
    return {"exit_code": 0, "signal": None, "ended_at": AT, "tail": "", "pid": 4711, **more}


def failed(
    ends: Mapping[int, Mapping[str, Any]], cause: Mapping[str, Any], outcome: str = "failed"
) -> RunRecord:
    """The run's record once it is over; `ends` says how some ranks ended, the others ended well."""
    decision = {"phase": "done", "outcome": outcome, "cause": dict(cause)}
    observed = {}
    for node in NODES:
        ranks = [
            {"rank": rank, "local_rank": local, "bytes": 100, **(ends.get(rank) or ended())}
            for local, rank in enumerate(node.ranks)
        ]
        state = {
            "node_rank": node.node_rank,
            "state": "ended",
            "ended_at": AT + 1,
            "clock_offset_s": 0.0,
            "ranks": ranks,
            "decision": decision,
        }
        observed[node.host] = Observed(state)
    status = document(RECORD, observed)
    return RunRecord(**{**RECORD.__dict__, "status": status})


def rank_failed(rank: int, **how: Any) -> RunRecord:
    """One rank failed first; its node's other rank was stopped, and all others lost the connection."""
    host = RECORD.node_of(rank)
    ends = {}
    for other in range(6):
        if other == rank:
            ends[other] = ended(**{"exit_code": 1, **how})
        elif other in host.ranks:
            ends[other] = ended(exit_code=None, signal=15, ended_at=AT + 0.4)
        else:
            ends[other] = ended(exit_code=1, ended_at=AT + 0.2, tail=FOLLOWED)
    entry = ends[rank]
    cause = {
        "kind": "rank",
        "rank": rank,
        "alias": host.host,
        "node_rank": host.node_rank,
        "exit_code": entry["exit_code"],
        "signal": entry["signal"],
        "at": AT,
    }
    return failed(ends, cause)
