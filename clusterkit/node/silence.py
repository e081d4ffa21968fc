"""Does the job still say anything? From the sizes of the ranks' logs alone. No I/O in here."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

State = Dict[str, Any]


class Silence:
    """Notices when every rank that runs has written nothing for `limit` seconds (0: never)."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._sizes: Dict[int, Tuple[int, float]] = {}

    def look(self, now: float, awake_since: float, states: Sequence[Optional[State]]) -> Optional[List[int]]:
        """The ranks that hang; None as long as one has written lately, or not all have started.

        `now` is the monotonic clock; what was not seen before `awake_since` (we were paused) does not count.
        """
        ranks = [rank for state in states if state for rank in state["ranks"]]
        for rank in ranks:
            known = self._sizes.get(rank["rank"])
            if known is None or known[0] != rank.get("bytes", 0):
                self._sizes[rank["rank"]] = (rank.get("bytes", 0), now)
        running = [
            rank["rank"] for rank in ranks if rank["started_at"] is not None and rank["ended_at"] is None
        ]
        gathering = any(state is None for state in states) or any(
            rank["started_at"] is None for rank in ranks
        )
        if self._limit <= 0 or gathering or not running:
            return None
        last = max(self._sizes[rank["rank"]][1] for rank in ranks)
        return sorted(running) if now - max(last, awake_since) >= self._limit else None


def folded(ranks: Sequence[int]) -> str:
    """Rising ranks in their shortest form: `0,2-5`."""
    parts: List[List[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], rank]
        else:
            parts.append([rank, rank])
    return ",".join("%d" % first if first == last else "%d-%d" % (first, last) for first, last in parts)
