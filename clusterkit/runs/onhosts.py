"""A run's record as it lies on its hosts: `RUN_DIR/run.json`, for whoever has no record of his own. Pure.

It says everything but how the hosts are reached: that comes from the reader's own inventory, since a file on
a host must not decide where the reader's machine connects to, nor through which command.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clusterkit.inventory.model import Settings
from clusterkit.planning.places import file_name
from clusterkit.runs.record import NodeRecord, RunRecord, as_document, from_document, reach

NAME = "run.json"


def text(record: RunRecord) -> str:
    """The file's content: one line of JSON without addresses, users, keys and options of ssh."""
    nodes = tuple(replace(node, reach={}) for node in record.nodes)
    return json.dumps(as_document(replace(record, nodes=nodes, status={}))) + "\n"


def runs_folder(settings: Settings) -> str:
    """Where the runs of this host lie on it; may begin with `~/`."""
    return posixpath.join(settings.remote_dir, file_name(settings.alias), "runs")


def parse(line: str) -> RunRecord | None:
    """The record in such a file, None for anything else."""
    try:
        return from_document(json.loads(line))
    except (ValueError, KeyError, TypeError):
        return None


def merged(
    copies: Mapping[str, RunRecord], members: Mapping[str, Settings], inventory: str
) -> RunRecord | None:
    """One record out of each host's own copy; None without any.

    What a host says about itself counts for that host alone: paths and interpreter are its own copy's. A node
    that is not in the reader's inventory has an empty `reach`.
    """
    if not copies:
        return None
    first = next(iter(copies.values()))
    nodes = tuple(_own(node, copies.get(node.host), members.get(node.host)) for node in first.nodes)
    return replace(first, nodes=nodes, inventory=inventory)


def _own(node: NodeRecord, copy: RunRecord | None, settings: Settings | None) -> NodeRecord:
    rows = [row for row in copy.nodes if row.host == node.host] if copy else []
    own = rows[0] if rows else node
    how: Mapping[str, Any] = reach(settings) if settings else {}
    return replace(own, node_rank=node.node_rank, ranks=node.ranks, reach=how)
