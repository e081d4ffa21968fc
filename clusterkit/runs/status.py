"""What the nodes of a run say, merged into one document: the keys of `status --json` and of `run.json`.

Pure: `observed` in, a dict out. Node 0 decides how a run goes (docs/architecture.md); a node that we cannot
reach ourselves is `unobserved`, which says nothing about its training, unless node 0 has declared it lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from signal import SIGINT, SIGKILL, Signals
from typing import Any

from clusterkit.errors import ExitCode
from clusterkit.runs import processes
from clusterkit.runs.record import ENDED, SCHEMA, NodeRecord, RunRecord, iso

# No supervisor ends without a word unless it is made to.
_DIED = "killed, or the host was restarted"
_PHASES = ("gate", "prepare", "start", "stop", "done")
_CAUSES = {
    "rank": "rank",
    "server": "rank",
    "lost": "node",
    "launcher": "node",
    "supervisor": "node",
    "gpu": "node",
    "user": "user",
    "stop": "user",
}


@dataclass(frozen=True)
class Observed:
    """What one host's agent said last (None if it never did), and in `error` why it does not answer now."""

    state: Mapping[str, Any] | None
    error: str = ""

    @property
    def reachable(self) -> bool:
        """True if the host answered the last time it was asked."""
        return not self.error


def decision(observed: Mapping[str, Observed], record: RunRecord) -> Mapping[str, Any]:
    """The furthest decision that any node knows, node 0's own first."""
    best: Mapping[str, Any] = {
        "phase": "gate",
        "outcome": None,
        "cause": None,
        "attempt": record.attempt,
        "history": record.status.get("history", []),
    }
    for node in record.nodes:
        state = observed.get(node.host, Observed(None)).state
        known = (state or {}).get("decision") or {}
        if _progress(known) > _progress(best):
            best = known
    return best


def _progress(decided: Mapping[str, Any]) -> tuple[int, int]:
    return int(decided.get("attempt", 0)), _PHASES.index(decided.get("phase", "gate"))


def _attempts(
    decided: Mapping[str, Any], state: str, cause: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Every attempt of the run and how it ended; the last one is the run as it stands."""
    past = [
        _attempt(int(each["attempt"]), str(each["outcome"]), each.get("cause"))
        for each in decided.get("history", [])
    ]
    return [*past, _attempt(int(decided.get("attempt", 0)), state, cause)]


def _attempt(number: int, state: str, cause: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "attempt": number,
        "state": state,
        "exit_code": exit_code(state, cause) if state in ENDED else None,
        "cause": _CAUSES.get(cause["kind"], "clusterkit") if cause else None,
        "reason": reason(cause) if cause else "",
    }


def ended(observed: Mapping[str, Observed], record: RunRecord) -> bool:
    """True once the run is over: decided, and every node that can be observed has ended."""
    if decision(observed, record)["phase"] != "done":
        return False
    return all(
        not seen.reachable or (seen.state or {}).get("state") == "ended"
        for seen in (observed.get(node.host, Observed(None, "not asked")) for node in record.nodes)
    )


def document(record: RunRecord, observed: Mapping[str, Observed]) -> dict[str, Any]:
    """The status document of a run (schema 1), times corrected by the measured clock offsets."""
    decided = decision(observed, record)
    cause = _with_dead_supervisor(decided.get("cause"), observed) or _dead_supervisor(record, observed)
    states = {node.host: _state_of(node, record, observed) for node in record.nodes}
    nodes = [_node(node, record, observed, states[node.host], cause) for node in record.nodes]
    state = _run_state(record, decided, nodes, observed, cause)
    over = state in ENDED
    first = record.nodes[0]
    return {
        "schema": SCHEMA,
        "run_id": record.run_id,
        "state": state,
        "attempt": int(decided.get("attempt", 0)),
        "attempts": _attempts(decided, state, cause),
        "exit_code": exit_code(state, cause) if over else None,
        "cause": _CAUSES.get(cause["kind"], "clusterkit") if cause else None,
        "reason": reason(cause) if cause else "",
        "root": _root(record, states, cause),
        "said": _said(cause),
        "hang": _hang(decided.get("hang")),
        "nodes": nodes,
        "ranks": [entry for node in record.nodes for entry in _ranks(node, states[node.host], first)],
        "servers": [entry for node in record.nodes for entry in _servers(node, states[node.host], first)],
    }


def _hang(hang: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The ranks of a job that hangs, all of those that run, and since when they are silent."""
    return {"ranks": hang["ranks"], "since": iso(hang["since"])} if hang else None


def exit_code(state: str, cause: Mapping[str, Any] | None) -> int:
    """The run's exit code: the failing rank's own (128+n for a signal), 4 for a lost node, 130 or 143."""
    if state == "succeeded":
        return ExitCode.OK
    kind = cause["kind"] if cause else None
    if kind in ("rank", "server"):
        assert cause is not None
        signal = cause.get("signal")
        return 128 + int(signal) if signal else int(cause.get("exit_code") or ExitCode.FAILED)
    if kind == "user":
        assert cause is not None
        return 128 + int(cause.get("signal") or SIGINT)
    fixed = {
        "lost": ExitCode.UNREACHABLE,
        "supervisor": ExitCode.UNREACHABLE,
        "gpu": ExitCode.UNREACHABLE,
        "stop": ExitCode.STOPPED,
    }
    return fixed.get(str(kind), ExitCode.FAILED)


def reason(cause: Mapping[str, Any]) -> str:
    """One sentence: what ended the run, on which host and rank."""
    kind, host, detail = cause["kind"], cause.get("alias"), _first_line(cause)
    if kind in ("rank", "server"):
        signal = cause.get("signal")
        how = f"was killed by {_signal(int(signal))}" if signal else f"exited with {cause.get('exit_code')}"
        return f"{kind} {cause.get(kind)} on {host} {how}"
    if kind == "lost":
        return f"{host} was lost: {detail}" if detail else f"{host} was lost"
    sentences = {
        "launcher": f"the launcher on {host} failed",
        "supervisor": f"the supervisor on {host} died",
        "gpu": f"a GPU of {host} is not fit for a job any more",
        "join": "not all nodes joined in time",
        "hang": "the job hung",
        "world size": f"the job on {host} has a world size or rank other than planned",
        "gate": "the nodes were never told to start",
        "channel": f"{host} cannot reach node 0",
        "user": "interrupted by the user",
        "stop": "stopped by `clusterkit stop`",
    }
    sentence = sentences.get(kind, f"{kind} on {host}")
    return f"{sentence}: {detail}" if detail else sentence


def _first_line(cause: Mapping[str, Any]) -> str:
    return str(cause.get("detail") or "").partition("\n")[0]


def _said(cause: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What Paddle's launcher said before it failed; it stands under the first line of the cause's detail."""
    lines = str(cause.get("detail") or "").splitlines()[1:] if cause else []
    return {"host": cause.get("alias"), "lines": lines} if cause and lines else None


def _signal(number: int) -> str:
    try:
        name = Signals(number).name
    except ValueError:
        return f"signal {number}"
    # Nobody but a person and the kernel sends SIGKILL while a job runs.
    often = ", often for lack of memory: see `dmesg` there" if number == SIGKILL else ""
    return f"signal {number} ({name}{often})"


def _state_of(node: NodeRecord, record: RunRecord, observed: Mapping[str, Observed]) -> Mapping[str, Any]:
    """A node's state: its own word, else node 0's copy of it, else nothing."""
    own = observed.get(node.host, Observed(None)).state
    copies = [own] if own else []
    first = observed.get(record.nodes[0].host, Observed(None)).state or {}
    copies += [
        peer["state"]
        for peer in first.get("peers", [])
        if peer["node_rank"] == node.node_rank and peer.get("state")
    ]
    if not copies:
        return {}
    order = ("gate", "prepared", "starting", "running", "stopping", "ended")
    return max(copies, key=lambda state: (state.get("attempt", 0), order.index(state.get("state", "gate"))))


def _node(
    node: NodeRecord,
    record: RunRecord,
    observed: Mapping[str, Observed],
    state: Mapping[str, Any],
    cause: Mapping[str, Any] | None,
) -> dict[str, Any]:
    seen = observed.get(node.host, Observed(None, "not asked"))
    shown = str(state.get("state", "planned"))
    is_cause = cause and cause["kind"] in ("lost", "supervisor") and cause.get("alias") == node.host
    if (is_cause or _is_dead(seen)) and shown != "ended":
        shown = "lost"
    elif not seen.reachable and shown != "ended":
        shown = "unobserved"
    correction = _correction(state, record.nodes[0])
    return {
        "host": node.host,
        "node_rank": node.node_rank,
        "node_ip": node.node_ip,
        "state": shown,
        "started_at": iso(_minus(state.get("started_at"), correction)),
        "ended_at": iso(_minus(state.get("ended_at"), correction)),
        "exit_code": state.get("launcher_exit"),
        "error": seen.error,
    }


def _run_state(
    record: RunRecord,
    decided: Mapping[str, Any],
    nodes: list[dict[str, Any]],
    observed: Mapping[str, Observed],
    cause: Mapping[str, Any] | None,
) -> str:
    phase = decided["phase"]
    if phase == "done":
        return str(decided.get("outcome") or "failed")
    if phase == "stop":
        return "stopping"
    if cause is not None:
        return "lost"
    if phase in ("gate", "prepare"):
        return "starting" if any(seen.state for seen in observed.values()) else record.state
    running = [node["state"] in ("running", "ended", "unobserved", "lost") for node in nodes]
    return "running" if all(running) else "starting"


def _with_dead_supervisor(
    cause: Mapping[str, Any] | None, observed: Mapping[str, Observed]
) -> Mapping[str, Any] | None:
    """The cause. A node is silent also when only its supervisor died: that is what its host says then."""
    if cause is None or cause["kind"] != "lost":
        return cause
    seen = observed.get(str(cause.get("alias")), Observed(None))
    return {**cause, "kind": "supervisor", "detail": _DIED} if _is_dead(seen) else cause


def _dead_supervisor(record: RunRecord, observed: Mapping[str, Observed]) -> Mapping[str, Any] | None:
    """The cause that is left when no supervisor lives to name one."""
    seen = {node.host: observed.get(node.host, Observed(None)) for node in record.nodes}
    dead = [host for host, each in seen.items() if _is_dead(each)]
    alive = [
        host
        for host, each in seen.items()
        if each.state and not _is_dead(each) and each.state.get("state") != "ended"
    ]
    if not dead or alive:
        return None
    return {"kind": "supervisor", "alias": dead[0], "detail": _DIED}


def _is_dead(seen: Observed) -> bool:
    """True if the host itself says that its supervisor ended without a word (`written` of the agent)."""
    return bool(seen.state and seen.state.get("supervisor") == "dead")


def _correction(state: Mapping[str, Any], first: NodeRecord) -> float:
    """What a node's clock is ahead of this machine's: of node 0's by its own word, and that one's of ours."""
    return float(state.get("clock_offset_s") or 0.0) + first.clock_offset_s


def _ranks(node: NodeRecord, state: Mapping[str, Any], first: NodeRecord) -> list[dict[str, Any]]:
    known = {entry["rank"]: entry for entry in state.get("ranks", [])}
    correction = _correction(state, first)
    return [
        {
            "rank": rank,
            "role": "trainer",
            "host": node.host,
            "node_rank": node.node_rank,
            "local_rank": local_rank,
            "log": known.get(rank, {}).get("log") or node.log_of(rank),
            "bytes": known.get(rank, {}).get("bytes") or 0,
            "exit_code": known.get(rank, {}).get("exit_code"),
            "signal": known.get(rank, {}).get("signal"),
            "ended_at": iso(_minus(known.get(rank, {}).get("ended_at"), correction)),
            "pid": known.get(rank, {}).get("pid"),
        }
        for local_rank, rank in enumerate(node.ranks)
    ]


def _servers(node: NodeRecord, state: Mapping[str, Any], first: NodeRecord) -> list[dict[str, Any]]:
    known = {entry["server"]: entry for entry in state.get("servers", [])}
    correction = _correction(state, first)
    return [
        {
            "server": number,
            "role": "server",
            "host": node.host,
            "node_rank": node.node_rank,
            "log": known.get(number, {}).get("log") or node.log_of(processes.server(number)),
            "bytes": known.get(number, {}).get("bytes") or 0,
            "exit_code": known.get(number, {}).get("exit_code"),
            "signal": known.get(number, {}).get("signal"),
            "ended_at": iso(_minus(known.get(number, {}).get("ended_at"), correction)),
            "pid": known.get(number, {}).get("pid"),
        }
        for number in node.servers
    ]


def _root(
    record: RunRecord, states: Mapping[str, Mapping[str, Any]], cause: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The rank that failed first, with the end of its log."""
    if not cause or cause["kind"] not in ("rank", "server"):
        return None
    kind, host = cause["kind"], cause.get("alias")
    number = cause.get(kind)
    entries = {entry[kind]: entry for entry in states.get(str(host), {}).get(f"{kind}s", [])}
    tail = str(entries.get(number, {}).get("tail") or "")
    return {
        "rank": cause.get("rank"),
        **({"server": number} if kind == "server" else {}),
        "host": host,
        "exit_code": cause.get("exit_code"),
        "signal": cause.get("signal"),
        "lines": tail.splitlines()[-10:],
    }


def _minus(value: float | None, correction: float) -> float | None:
    return None if value is None else value - correction
