"""Which failure brought the run down: from the nodes' states, without regard to the order they came in."""

import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

Cause = Dict[str, Any]
State = Dict[str, Any]

# A rank that says this has usually lost a peer that failed before it.
_LOST_A_PEER = re.compile(
    r"connection reset|connection closed by peer|closed by the remote|broken pipe|socket closed|peer closed"
    r"|gloo/transport|ncclRemoteError|ncclSystemError|nccl error|connection aborted"
    r"|connectionreseterror|brokenpipeerror|connection refused",
    re.IGNORECASE,
)
# A rank that lost a peer has one that failed about the same time; it may need some seconds to end.
_TOGETHER = 5.0
# A node that has been silent for this long when a rank fails was gone before it (states come every second).
_SILENT_BEFORE = 3.0
# Paddle's launcher gives the other ranks of a node this long between SIGTERM and SIGKILL.
_LAUNCHER_GRACE = 2.5

_SIGKILL = 9
_SIGTERM = 15


class Failed(NamedTuple):
    """A rank, a launcher or a node that ended otherwise than it should; `at` is node 0's clock."""

    cause: Cause
    at: float
    signum: Optional[int]
    lost_a_peer: bool


class Lost(NamedTuple):
    """A node that node 0 does not hear any more, and when (node 0's clock) it was heard last.

    Node rank 0 stands for node 0 itself, cut off from all the others.
    """

    node_rank: int
    alias: str
    heard_at: float


def lost_a_peer(tail: str) -> bool:
    """True if the end of a rank's log speaks of a connection to another rank that broke."""
    return bool(_LOST_A_PEER.search(tail))


def failures(states: Sequence[State]) -> List[Failed]:
    """Everything that failed, by corrected time."""
    found: List[Failed] = []
    for state in states:
        found.extend(_failed_ranks(state))
        failure = state.get("failure")
        if failure and failure["kind"] != "rank":
            found.append(_failed_node(state, failure))
    return sorted(found, key=lambda failed: failed.at)


def _failed_ranks(state: State) -> List[Failed]:
    found = []
    for rank in state.get("ranks", []):
        if rank["ended_at"] is None or (rank["exit_code"] == 0 and rank["signal"] is None):
            continue
        if rank.get("refused"):
            continue  # It did not run: the node's failure says why.
        at = rank["ended_at"] - _offset(state)
        cause = _cause("rank", state, at, how_it_ended(rank), rank)
        found.append(Failed(cause, at, signal_of(rank), lost_a_peer(rank.get("tail") or "")))
    return found


def _failed_node(state: State, failure: Dict[str, Any]) -> Failed:
    at = failure["at"] - _offset(state)
    cause = _cause(failure["kind"], state, at, failure.get("detail") or "", failure)
    if failure["kind"] == "lost":
        cause["node_rank"], cause["alias"] = failure["node_rank"], failure["alias"]
    return Failed(cause, at, failure.get("signal"), False)


def _offset(state: State) -> float:
    return float(state.get("clock_offset_s") or 0.0)


def _cause(kind: str, state: State, at: float, detail: str, ended: Dict[str, Any]) -> Cause:
    server = {"server": ended["server"]} if ended.get("server") is not None else {}
    return {
        **server,
        "kind": kind,
        "node_rank": state["node_rank"],
        "alias": state["alias"],
        "rank": ended.get("rank"),
        "exit_code": ended.get("exit_code"),
        "signal": ended.get("signal"),
        "at": at,
        "detail": detail,
    }


def signal_of(rank: Dict[str, Any]) -> Optional[int]:
    """The signal that ended a rank, also where a shell turned it into 128 + n."""
    if rank["signal"] is not None:
        return int(rank["signal"])
    if rank["exit_code"] in (128 + _SIGKILL, 128 + _SIGTERM):
        return int(rank["exit_code"]) - 128
    return None


def how_it_ended(rank: Dict[str, Any]) -> str:
    """A rank's end in words, with the last line of its log."""
    if rank["signal"] is not None:
        words = "ended by signal %d" % rank["signal"]
    else:
        words = "ended with exit code %s" % rank["exit_code"]
    lines = [line.strip() for line in (rank.get("tail") or "").splitlines() if line.strip()]
    return "%s: %s" % (words, lines[-1][:300]) if lines else words


def root_cause(trigger: Cause, found: Sequence[Failed], lost: Sequence[Lost], stopped_at: float) -> Cause:
    """The cause to report, out of what made node 0 stop the run and everything known now.

    A person's stop, a gate and a join timeout are what they are. Between failures the earliest
    corrected end decides, followers left out: ranks that were ended by our stop or by their own
    launcher after another rank, and ranks that complain about a lost peer while something else failed.
    """
    if trigger["kind"] not in ("rank", "server", "launcher", "lost"):
        return trigger
    if trigger["kind"] == "lost":
        found = [failed for failed in found if failed.at <= stopped_at]
    roots = [failed for failed in found if not _is_follower(failed, found, stopped_at)]
    if not roots:
        return trigger
    root = roots[0]
    gone = [node for node in lost if root.lost_a_peer or node.heard_at < root.at - _SILENT_BEFORE]
    if gone:
        return lost_cause(min(gone, key=lambda node: node.heard_at))
    return root.cause


def _is_follower(failed: Failed, found: Sequence[Failed], stopped_at: float) -> bool:
    others = [other for other in found if other is not failed]
    if failed.signum in (_SIGTERM, _SIGKILL) and failed.at > stopped_at:
        return True
    if failed.signum == _SIGTERM and any(
        other.at <= failed.at or _launchers_death(other, failed) for other in others
    ):
        return True
    if failed.signum == _SIGKILL and any(_same_node(other, failed, _LAUNCHER_GRACE) for other in others):
        return True
    return failed.lost_a_peer and any(_explains(other, failed, stopped_at) for other in others)


def _launchers_death(other: Failed, failed: Failed) -> bool:
    """The launcher of that node was killed: its ranks get SIGTERM a moment before its end is noticed."""
    killed = other.cause["kind"] == "launcher" and other.signum is not None
    return killed and _same_node(other, failed, -_TOGETHER)


def _same_node(other: Failed, failed: Failed, earlier_by: float) -> bool:
    return other.cause["node_rank"] == failed.cause["node_rank"] and other.at <= failed.at - earlier_by


def _explains(other: Failed, failed: Failed, stopped_at: float) -> bool:
    """`failed` lost a peer: did `other` end on its own at about the same time?"""
    if other.lost_a_peer or other.signum == _SIGTERM or abs(other.at - failed.at) > _TOGETHER:
        return False
    return not (other.signum == _SIGKILL and other.at > stopped_at)


def lost_cause(node: Lost) -> Cause:
    """The cause for a node that is not heard any more."""
    since = time.strftime("%H:%M:%S UTC", time.gmtime(node.heard_at))
    words = "node 0 has heard nothing from it since %s"
    if node.node_rank == 0:
        words = "it has heard no other node since %s"
    return {
        "kind": "lost",
        "node_rank": node.node_rank,
        "alias": node.alias,
        "rank": None,
        "exit_code": None,
        "signal": None,
        "at": node.heard_at,
        "detail": words % since,
    }
