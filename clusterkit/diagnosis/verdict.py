"""Out of what a run left behind: what failed first, who merely followed, which known failure it was. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from signal import SIGKILL, Signals
from typing import Any

from clusterkit.diagnosis import matching, text
from clusterkit.diagnosis.followers import Follower, failed_processes, followers
from clusterkit.diagnosis.matching import Match, Source
from clusterkit.diagnosis.remains import Remains, entry_of, first_failed, has_failed
from clusterkit.diagnosis.rules import GLOO_PORT, Rule, fill
from clusterkit.errors import ExitCode
from clusterkit.runs import processes
from clusterkit.runs.record import ENDED, RunRecord
from clusterkit.tables import Tables, Xid

SCHEMA = 1
_LAST_LINES = 10
# A traceback through many layers of a framework is cut in its middle.
_LONGEST_TRACEBACK = 40
# So many other ranks' logs are searched for known failures.
_MOST_OTHERS = 64
# Linux' own default.
_EPHEMERAL = range(32768, 61000)
_WORKER_DIED = "exit unexpectedly"
_KILLS = ("out-of-memory-kill", "out-of-memory-kill-cgroup")


def diagnosis(record: RunRecord, remains: Remains, rules: Sequence[Rule], tables: Tables) -> dict[str, Any]:
    """The document of `clusterkit diagnose --json` (docs/schema/diagnose.schema.json)."""
    status = remains.status
    state = str(status.get("state", record.state))
    base = {
        "run_id": record.run_id,
        "state": state,
        "attempt": int(status.get("attempt", 0)),
        "reason": str(status.get("reason") or ""),
        "root": None,
        "known": [],
        "first_error": None,
        "followed": [],
        "failed_too": [],
        "gpu_processes": [],
        "away": dict(remains.away),
        "unread": list(remains.unread),
    }
    if has_failed(status):
        return _failed(record, remains, rules, tables, base)
    silent = {node["host"]: node["error"] for node in status.get("nodes", []) if node.get("error")}
    away = {} if state in ENDED else silent
    return _ended({**base, "away": away}, _nothing_failed(record, status, state), known=True)


def _ended(document: dict[str, Any], summary: str, *, known: bool) -> dict[str, Any]:
    code = ExitCode.UNREACHABLE if document["away"] else ExitCode.OK if known else ExitCode.FAILED
    head = {"schema": SCHEMA, "ok": code == ExitCode.OK, "exit_code": int(code), "summary": summary}
    return {**head, **document}


def _nothing_failed(record: RunRecord, status: Mapping[str, Any], state: str) -> str:
    run = f"run {record.run_id}"
    if state == "succeeded":
        before = [each for each in status.get("attempts", []) if each.get("state") != "succeeded"]
        reasons = "; ".join(f"attempt {each['attempt']} failed: {each.get('reason', '')}" for each in before)
        return f"{run} succeeded: nothing to explain" + (f" ({reasons})" if before else "")
    if state == "stopped":
        return f"{run} was ended by a person ({status.get('reason')}): nothing failed"
    hang = status.get("hang")
    if hang:
        return f"{run} is {state} and hangs: ranks {hang['ranks']} have been silent since {hang['since']}"
    waiting = [f"rank {rank['rank']} on {rank['host']}" for rank in status.get("ranks", []) if _awaited(rank)]
    if state == "starting" and waiting:
        return f"{run} is starting, nothing has failed: it waits for {', '.join(waiting[:8])} to start"
    return f"{run} is {state}, and nothing has failed so far"


def _awaited(rank: Mapping[str, Any]) -> bool:
    return rank.get("joined") is False


def _failed(
    record: RunRecord, remains: Remains, rules: Sequence[Rule], tables: Tables, base: dict[str, Any]
) -> dict[str, Any]:
    status = remains.status
    root = first_failed(status)
    logs = _lines(status, root, remains.logs)
    known = _known(record, remains, rules, tables, root, logs)
    said = text.raised(logs.get(root, [])) if root is not None else text.Raised((), "")
    after = followers(status, root, _ended_at(status, root), logs)
    document = {
        **base,
        "root": _root(status, root, logs, said),
        "known": [_explained(record, match, tables) for match in known],
        "first_error": _first_error(record, root, said, logs),
        "followed": [_follower(each) for each in after if each.why != "failed too"],
        "failed_too": [_follower(each) for each in after if each.why == "failed too"],
        "gpu_processes": _gpu_processes(remains, known),
    }
    return _ended(document, _summary(document), known=bool(known))


def _lines(status: Mapping[str, Any], root: int | None, logs: Mapping[int, str]) -> dict[int, list[str]]:
    """Every log in lines; of the first rank's the record keeps the last ones, whatever became of its log."""
    found = {process: text.lines(said) for process, said in logs.items()}
    if root is not None and root not in found:
        found[root] = text.lines("\n".join((status.get("root") or {}).get("lines", [])))
    return found


def _summary(document: Mapping[str, Any]) -> str:
    if document["known"]:
        return str(document["known"][0]["meaning"])
    first = document["first_error"]
    if first:
        return f"no known failure; the first error of {first['who']} on {first['host']}: {first['line']}"
    reason = document["reason"] or "no reason is recorded"
    return f"no known failure, and no error in what could be read: {reason}"


def _known(
    record: RunRecord,
    remains: Remains,
    rules: Sequence[Rule],
    tables: Tables,
    root: int | None,
    logs: Mapping[int, list[str]],
) -> list[Match]:
    matches = [
        match
        for source in _sources(record, remains, root, logs)
        for match in matching.find(rules, source)
        if not _is_harmless(match, tables) and not _as_a_matter_of_course(match)
    ]
    weighed = [_weighed(match, remains.status, root, logs, tables) for match in matches]
    return matching.ordered(weighed)


def _as_a_matter_of_course(match: Match) -> bool:
    """A rank that failed later says this whatever the first one had."""
    return match.rule.first_only and match.source.where == "rank" and match.source.nearness > 0


def _sources(
    record: RunRecord, remains: Remains, root: int | None, logs: Mapping[int, list[str]]
) -> Iterable[Source]:
    """Everything that may hold a reason; the launchers' logs only where no rank is to blame."""
    status = remains.status
    host = record.node_of(root).host if root is not None else _culprit(record, status)
    yield Source("reason", host, [str(status.get("reason") or "")])
    if root is not None:
        yield Source("end", host, [_how_ended(entry_of(status, root))], root)
        yield Source("rank", host, logs.get(root, []), root)
    for process in _earliest(status, root):
        yield Source("rank", record.node_of(process).host, logs.get(process, []), process, 3)
    if root is None:
        said = status.get("said") or {}
        yield Source("launcher", str(said.get("host") or host), said.get("lines", []), nearness=1)
        for place, log in remains.launchers.items():
            yield Source("launcher", place, text.lines(log), nearness=1 if place == host else 2)
    for place, kernel in remains.kernel.items():
        yield Source("kernel", place, [line.text for line in kernel], nearness=0 if place == host else 2)


def _earliest(status: Mapping[str, Any], root: int | None) -> list[int]:
    """The others that failed, those that ended first; of a thousand the rest says nothing new."""
    others = [process for process in failed_processes(status) if process != root]
    by_time = sorted(others, key=lambda process: str(entry_of(status, process).get("ended_at") or "~"))
    return by_time[:_MOST_OTHERS]


def _culprit(record: RunRecord, status: Mapping[str, Any]) -> str:
    """The host that the reason names; the first one of the run if it names none."""
    reason = str(status.get("reason") or "").replace(":", " ").replace("(", " ").split()
    return next((node.host for node in record.nodes if node.host in reason), record.nodes[0].host)


def _how_ended(entry: Mapping[str, Any]) -> str:
    number = _signal(entry)
    if number is None:
        return f"exit code {entry.get('exit_code')}"
    try:
        return f"signal {number} ({Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _signal(entry: Mapping[str, Any]) -> int | None:
    """The signal that ended it, also where a shell made 128+n of it."""
    if entry.get("signal"):
        return int(entry["signal"])
    code = entry.get("exit_code") or 0
    return code - 128 if 128 < code < 160 else None


def _weighed(
    match: Match,
    status: Mapping[str, Any],
    root: int | None,
    logs: Mapping[int, list[str]],
    tables: Tables,
) -> Match:
    """A kernel line that need not be about this job counts as a symptom only."""
    if match.rule.name in _KILLS and not _is_ours(match, status, root, logs):
        return matching.as_symptom(match)
    xid = _xid(match, tables)
    if xid is not None and xid.status == "warning":
        return matching.as_symptom(match)
    return match


def _is_ours(
    match: Match, status: Mapping[str, Any], root: int | None, logs: Mapping[int, list[str]]
) -> bool:
    """A kill is about this job if it ended one of its ranks, or one of a rank's workers."""
    for process in failed_processes(status):
        entry = entry_of(status, process)
        if entry.get("host") != match.source.host:
            continue
        if str(entry.get("pid")) == match.values.get("pid") or _signal(entry) == SIGKILL:
            return True
        if any(_WORKER_DIED in line for line in logs.get(process, [])):
            return True
    return False


def _is_harmless(match: Match, tables: Tables) -> bool:
    xid = _xid(match, tables)
    return xid is not None and xid.status == "ok"


def _xid(match: Match, tables: Tables) -> Xid | None:
    """What the number in the line means; None if there is none."""
    code = match.values.get("xid", "")
    if not code.isdecimal():
        return None
    if match.values.get("kind") == "SXid":
        return tables.sxid(int(code), fatal=f"{code}, Fatal" in match.line)
    return tables.xid(int(code))


def _explained(record: RunRecord, match: Match, tables: Tables) -> dict[str, Any]:
    source = match.source
    values = _values(record, match, tables)
    whose = processes.keys(source.process) if source.process is not None else {}
    return {
        "rule": match.rule.name,
        "symptom": match.rule.symptom,
        "meaning": fill(match.rule.meaning, values),
        "cure": fill(match.rule.cure, values),
        "evidence": {
            "where": source.where,
            "host": source.host,
            "rank": None,
            **whose,
            "line": match.line,
            "count": match.count,
            "values": dict(match.values),
        },
    }


def _values(record: RunRecord, match: Match, tables: Tables) -> dict[str, str]:
    """What the sentences may name: groups, nodes by name beside their address, and whose line it is."""
    names = {node.node_ip: node.host for node in record.nodes}
    values = {
        key: f"{names[value]} ({value})" if value in names else value for key, value in match.values.items()
    }
    port = values.get("port") or _real_port(values.get(GLOO_PORT, ""))
    if port:
        values["port"] = f"port {port}"
    process = match.source.process
    xid = _xid(match, tables)
    if xid is not None:
        values["xid_advice"] = xid.advice
    given = {
        "host": match.source.host,
        "run": record.run_id,
        "who": processes.words(process) if process is not None else "the job",
    }
    if process is not None and process >= 0:
        given["rank"] = str(process)
    return {**given, **values}


def _real_port(printed: str) -> str:
    """The port that Gloo meant: it prints the network's order of bytes, and listens on ephemeral ports."""
    if not printed:
        return ""
    number = int(printed)
    swapped = (number & 0xFF) << 8 | number >> 8
    return printed if number in _EPHEMERAL and swapped not in _EPHEMERAL else str(swapped)


def _root(
    status: Mapping[str, Any], root: int | None, logs: Mapping[int, list[str]], said: text.Raised
) -> dict[str, Any] | None:
    if root is None:
        return None
    entry = entry_of(status, root)
    log = [line for line in logs.get(root, []) if line]
    return {
        "rank": None,
        **processes.keys(root),
        "host": entry.get("host"),
        "exit_code": entry.get("exit_code"),
        "signal": entry.get("signal"),
        "ended_at": entry.get("ended_at"),
        "lines": log[-_LAST_LINES:],
        "traceback": _cut(said.traceback),
    }


def _cut(traceback: Sequence[str]) -> list[str]:
    if len(traceback) <= _LONGEST_TRACEBACK:
        return list(traceback)
    half = _LONGEST_TRACEBACK // 2
    left = len(traceback) - 2 * half
    return [*traceback[:half], f"… {left} lines …", *traceback[-half:]]


def _first_error(
    record: RunRecord, root: int | None, said: text.Raised, logs: Mapping[int, list[str]]
) -> dict[str, Any] | None:
    """The first error of the rank that failed first; where its log has none, its last line."""
    if root is None:
        return None
    line = said.first_error or next((line.strip() for line in reversed(logs.get(root, [])) if line), "")
    if not line:
        return None
    who = {"rank": None, **processes.keys(root), "who": processes.words(root)}
    return {**who, "host": record.node_of(root).host, "line": line[:400]}


def _follower(each: Follower) -> dict[str, Any]:
    return {
        "rank": None,
        **processes.keys(each.process),
        "host": each.host,
        "exit_code": each.exit_code,
        "signal": each.signal,
        "why": each.why,
        "line": each.line,
        "after_s": None if each.after_s is None else round(each.after_s, 3),
    }


def _ended_at(status: Mapping[str, Any], root: int | None) -> str | None:
    return None if root is None else entry_of(status, root).get("ended_at")


def _gpu_processes(remains: Remains, known: Sequence[Match]) -> list[dict[str, Any]]:
    """What else computes on the GPUs of a host where that matters; the job itself has ended."""
    hosts = [match.source.host for match in known if "gpu processes" in match.rule.also]
    return [
        {
            "host": host,
            "pid": each.pid,
            "user": each.user,
            "command": each.command,
            "memory_mib": each.memory,
        }
        for host in dict.fromkeys(hosts)
        for each in remains.gpus.get(host, ())
    ]
