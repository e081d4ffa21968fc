"""Wait for hosts whose GPUs or ports another run holds: `launch --lock-wait SECONDS`.

A run holds them from its supervisor's start to its end (`node/hold.py`). Nothing is taken while we wait, so
two launches that want each other's hosts do not block each other: the one that finds all free goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from clusterkit.errors import ClusterkitError, FleetError, Held
from clusterkit.interrupts import Interrupts
from clusterkit.prepare import ChecksFailed
from clusterkit.runs.events import Event
from clusterkit.runs.watch import Tell
from clusterkit.steps.runs import OtherRuns

# How often the hosts are looked at again. Two launches that met begin again at different times.
PAUSE_S = (3.0, 6.0)


class Patience:
    """How long a launch still waits; `limit` in seconds, 0 for not at all."""

    def __init__(
        self,
        limit: float,
        tell: Tell,
        pause: Callable[[], float] = lambda: random.uniform(*PAUSE_S),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._end = clock() + limit
        self._tell = tell
        self._pause = pause
        self._told: set[str] = set()

    def again(self, error: ClusterkitError, interrupts: Interrupts) -> bool:
        """True, after a pause, if the error is only that hosts are held, and there is time to try again.

        Raises Interrupted when the pause was interrupted.
        """
        why = _held(error)
        left = self._end - self._clock()
        if not why or left <= 0:
            return False
        if why not in self._told:
            self._told.add(why)
            words = f"waiting up to {self._limit:.0f} s for hosts that are held: {why}"
            self._tell(Event("notice", "", {"text": words}))
        interrupts.cancel.wait(min(self._pause(), left))
        interrupts.check()
        return True


def _held(error: ClusterkitError) -> str:
    """Who holds what; "" if anything else is wrong too."""
    if isinstance(error, ChecksFailed):
        if any(verdict.name != OtherRuns.name for verdict in error.verdicts):
            return ""
        return "; ".join(f"{verdict.host}: {verdict.message}" for verdict in error.verdicts)
    if isinstance(error, FleetError) and all(isinstance(each, Held) for each in error.failures.values()):
        return "; ".join(f"{host}: {each.message}" for host, each in error.failures.items())
    return ""
