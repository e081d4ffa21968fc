"""Runs and their ranks as tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusterkit.errors import named
from clusterkit.report.folding import fold
from clusterkit.runs.record import RunRecord, age
from clusterkit.runs.selection import fold_ranks

# Beyond this many ranks a table of them is no overview any more: each node has a line already.
_MOST_RANKS = 64


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned columns, two blanks apart; the first row is the heading."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def status_lines(status: Mapping[str, Any]) -> list[str]:
    """A run: one line for it, one for each node, one for each rank, and the root failure's last lines."""
    reason = f": {status['reason']}" if status.get("reason") else ""
    code = f" (exit {status['exit_code']})" if status.get("exit_code") is not None else ""
    lines = [f"run {status['run_id']}  {status['state']}{code}{reason}"]
    past = status.get("attempts", [])[:-1]
    lines += [f"attempt {each['attempt']} {each['state']}: {each.get('reason', '')}" for each in past]
    lines += [f"attempt {status['attempt']} {status['state']}"] if past else []
    lines.append("")
    rows = [["NODE", "HOST", "ADDRESS", "STATE", "RANKS", "LOG BYTES", "ENDED"]]
    rows += [_node_row(node, status["ranks"], status.get("servers", [])) for node in status["nodes"]]
    lines += table(rows)
    lines += [named(node["host"], node["error"]) for node in status["nodes"] if node["error"]]
    lines += [_gpus(node) for node in status["nodes"] if node.get("gpus")]
    lines += _process_table(status["ranks"], status.get("servers", []))
    last = last_lines(status)
    lines += ["", *last] if last else []
    return lines


def last_lines(status: Mapping[str, Any]) -> list[str]:
    """The last words of what failed first, with a heading: a rank's log, or Paddle's launcher."""
    root, said = status.get("root"), status.get("said")
    if root and root["lines"]:
        return [
            f"last lines of {_named(root)} on {root['host']}:",
            *(f"  {line}" for line in root["lines"]),
        ]
    if said:
        return [f"the launcher on {said['host']} said:", *(f"  {line}" for line in said["lines"])]
    return []


def _named(root: Mapping[str, Any]) -> str:
    return f"server {root['server']}" if "server" in root else f"rank {root['rank']}"


def _node_row(
    node: Mapping[str, Any], ranks: Iterable[Mapping[str, Any]], servers: Iterable[Mapping[str, Any]]
) -> list[str]:
    own = [rank for rank in ranks if rank["node_rank"] == node["node_rank"]]
    own_servers = [server for server in servers if server["node_rank"] == node["node_rank"]]
    numbers = fold_ranks([server["server"] for server in own_servers])
    return [
        str(node["node_rank"]),
        node["host"],
        node["node_ip"],
        node["state"],
        " ".join(filter(None, [fold_ranks([rank["rank"] for rank in own]), numbers and f"server {numbers}"])),
        size(sum(each["bytes"] for each in (*own, *own_servers))),
        ", ".join(
            _how_ended(rank) for rank in own if rank["exit_code"] is not None or rank["signal"] is not None
        ),
    ]


def _how_ended(rank: Mapping[str, Any]) -> str:
    return f"{rank['rank']}: {end_of(rank)}"


def end_of(rank: Mapping[str, Any]) -> str:
    """`exit 0`, `signal 9`, or "" for a rank that has not ended."""
    if rank["signal"]:
        return f"signal {rank['signal']}"
    return "" if rank["exit_code"] is None else f"exit {rank['exit_code']}"


def _process_table(ranks: Sequence[Mapping[str, Any]], servers: Sequence[Mapping[str, Any]]) -> list[str]:
    """How far each rank and server has come, after an empty line; nothing where that was not asked for."""
    if not 0 < len(ranks) <= _MOST_RANKS or "joined" not in ranks[0]:
        return []
    heading = ["RANK", "HOST", "JOINED", "STEP", "LOG BYTES", "LAST LINE", "END"]
    rows = [_rank_row(rank) for rank in ranks] + [_server_row(server) for server in servers]
    # Of a run that is over nobody asks how old its last line is, and many scripts count no steps.
    told = [column for column in range(len(heading)) if any(row[column] for row in rows)]
    return ["", *table([[row[column] for column in told] for row in (heading, *rows)])]


def _rank_row(rank: Mapping[str, Any]) -> list[str]:
    age_s = rank["line_age_s"]
    return [
        str(rank["rank"]),
        rank["host"],
        "yes" if rank["joined"] else "no",
        step_of(rank),
        size(rank["bytes"]),
        "" if age_s is None else f"{span(age_s)} ago",
        end_of(rank),
    ]


def _server_row(server: Mapping[str, Any]) -> list[str]:
    joined = "yes" if server["joined"] else "no"
    return [
        f"server {server['server']}",
        server["host"],
        joined,
        "",
        size(server["bytes"]),
        "",
        end_of(server),
    ]


def step_of(rank: Mapping[str, Any]) -> str:
    """`epoch 2 step 120/1000`, as much of it as the rank's log says."""
    if rank["step"] is None:
        return ""
    epoch = "" if rank["epoch"] is None else f"epoch {rank['epoch']} "
    return f"{epoch}step {rank['step']}" + (f"/{rank['steps']}" if rank["steps"] else "")


def _gpus(node: Mapping[str, Any]) -> str:
    return f"{node['host']}: {'; '.join(_gpu(gpu) for gpu in node['gpus'])}"


def _gpu(gpu: Mapping[str, Any]) -> str:
    used, memory_used, memory = (
        "?" if gpu[key] is None else gpu[key] for key in ("used_percent", "memory_used_mib", "memory_mib")
    )
    return f"GPU {gpu['index']} {used} %, {memory_used} of {memory} MiB"


def runs_lines(records: Iterable[RunRecord], now: float | None = None) -> list[str]:
    """Runs, the newest first: id, state, age, hosts, script."""
    now = time.time() if now is None else now
    rows = [["RUN", "STATE", "EXIT", "AGE", "HOSTS", "RANKS", "SCRIPT"]]
    for record in records:
        code = record.status.get("exit_code")
        hosts = fold(node.host for node in record.nodes)
        rows.append(
            [
                record.run_id,
                record.state,
                "" if code is None else str(code),
                span(age(record, now)),
                hosts,
                str(record.world_size),
                " ".join([record.script, *record.args]),
            ]
        )
    return table(rows)


def size(count: int) -> str:
    """Bytes for people: 0, 812, 14.2 kB, 3.1 MB."""
    value, unit = float(count), ""
    for unit in ("", " kB", " MB", " GB", " TB"):
        if value < 1000 or unit == " TB":
            break
        value /= 1000
    return f"{value:.0f}{unit}" if not unit else f"{value:.1f}{unit}"


def span(seconds: float) -> str:
    """A time span for people: 12 s, 4 min, 3 h, 2 d."""
    for limit, unit, divisor in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
