"""Runs and their ranks as tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusterkit.errors import named
from clusterkit.report.folding import fold
from clusterkit.runs.record import RunRecord, age
from clusterkit.runs.selection import fold_ranks


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned columns, two blanks apart; the first row is the heading."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def status_lines(status: Mapping[str, Any]) -> list[str]:
    """A run: one line for it, one for each node, and the root failure's last lines."""
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
    how = f"signal {rank['signal']}" if rank["signal"] else f"exit {rank['exit_code']}"
    return f"{rank['rank']}: {how}"


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
