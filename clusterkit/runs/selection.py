"""Ranks as people write them: `3`, `0,2-5`, `all`."""

from __future__ import annotations

from collections.abc import Sequence

from clusterkit.errors import InputError, NotFound
from clusterkit.runs import processes
from clusterkit.runs.record import RunRecord


def parse_ranks(text: str, world_size: int) -> tuple[int, ...]:
    """The ranks named, rising, each once. Raises InputError for bad text, NotFound for a rank too high."""
    if text.strip() == "all":
        return tuple(range(world_size))
    chosen: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"`{text}` does not name ranks", "write `3`, `0,2-5` or `all`")
        low, high = int(first), int(last) if dash else int(first)
        if high < low:
            raise InputError(f"`{part.strip()}` runs backwards", f"write `{high}-{low}`")
        if high >= world_size:
            raise NotFound(
                f"there is no rank {high}: the run has {world_size} rank{'s'[: world_size != 1]}, "
                f"0 to {world_size - 1}",
                "`clusterkit status` lists them with their hosts",
            )
        chosen.update(range(low, high + 1))
    return tuple(sorted(chosen))


def fold_ranks(ranks: Sequence[int]) -> str:
    """Ranks in their shortest form: `0,2-5`."""
    parts: list[str] = []
    start = previous = None
    for rank in [*sorted(ranks), None]:
        if previous is not None and rank != previous + 1:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
            start = None
        if start is None:
            start = rank
        previous = rank
    return ",".join(parts)


def parse_servers(text: str, count: int) -> tuple[int, ...]:
    """The servers named, as `processes.server` numbers them; text as for ranks. Raises as `parse_ranks`."""
    if count == 0:
        raise NotFound("the run has no parameter servers", "`--rank` names its ranks")
    try:
        return tuple(processes.server(number) for number in parse_ranks(text, count))
    except NotFound as error:
        words = error.message.replace("rank", "server")
        raise NotFound(words, "`clusterkit status --json` lists them") from None


def choose(
    record: RunRecord, ranks: str | None, nodes: Sequence[str], servers: str | None = None
) -> tuple[int, ...]:
    """The ranks and servers that `--rank`, `--server` and `--node` select together; all ranks of none.

    Raises NotFound, InputError.
    """
    chosen: tuple[int, ...] = ()
    if ranks is not None or servers is None:
        chosen = parse_ranks(ranks or "all", record.world_size)
    if servers is not None:
        chosen += parse_servers(servers, sum(len(node.servers) for node in record.nodes))
    if not nodes:
        return chosen
    hosts = {node.host: node for node in record.nodes}
    for name in nodes:
        if name not in hosts:
            raise NotFound(f"run {record.run_id} has no node `{name}`", f"its nodes are {', '.join(hosts)}")
    return tuple(rank for rank in chosen if record.node_of(rank).host in nodes)
