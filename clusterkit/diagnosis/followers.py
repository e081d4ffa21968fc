"""Which ranks merely fell with the first one, and why, as the run's record has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from clusterkit.node.rootcause import lost_a_peer
from clusterkit.runs import processes

# `stopped`: ended by clusterkit's stop or by its launcher; `lost a peer`: its connection to a rank broke;
# `failed too`: for a reason of its own.
Why = Literal["stopped", "lost a peer", "failed too"]

_SIGNALS = (15, 9)
# Paddle's launcher ends with minus the signal as an exit code (241), a shell with 128 more.
_CODES = frozenset({143, 137, 241, 247})


@dataclass(frozen=True)
class Follower:
    """A rank or a server that ended otherwise than it should, after the first; `after_s` may be unknown."""

    process: int
    host: str
    exit_code: int | None
    signal: int | None
    why: Why
    line: str = ""
    after_s: float | None = None


def failed_processes(status: Mapping[str, Any]) -> list[int]:
    """Every rank and server that ended with an exit code other than 0, or by a signal."""
    return [
        _number(entry)
        for entry in (*status.get("ranks", []), *status.get("servers", []))
        if entry.get("signal") or entry.get("exit_code")
    ]


def followers(
    status: Mapping[str, Any], root: int | None, root_ended_at: str | None, logs: Mapping[int, list[str]]
) -> list[Follower]:
    """All that ended badly but the first; `logs` are the ends of their logs as far as they are known."""
    entries = (*status.get("ranks", []), *status.get("servers", []))
    return [
        _follower(entry, root_ended_at, logs.get(_number(entry), []))
        for entry in entries
        if (entry.get("signal") or entry.get("exit_code")) and _number(entry) != root
    ]


def _follower(entry: Mapping[str, Any], root_ended_at: str | None, log: list[str]) -> Follower:
    process = _number(entry)
    code, signal = entry.get("exit_code"), entry.get("signal")
    after = seconds_between(root_ended_at, entry.get("ended_at"))
    said = next((line.strip() for line in reversed(log[-200:]) if lost_a_peer(line)), "")
    why: Why = "failed too"
    if signal in _SIGNALS or code in _CODES:
        why, said = "stopped", ""
    elif said:
        why = "lost a peer"
    return Follower(process, str(entry["host"]), code, signal, why, said[:400], after)


def seconds_between(first: str | None, second: str | None) -> float | None:
    """From one ISO time to the other; None if one is not known."""
    if not first or not second:
        return None
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


def _number(entry: Mapping[str, Any]) -> int:
    return int(entry["rank"]) if "rank" in entry else processes.server(int(entry["server"]))
