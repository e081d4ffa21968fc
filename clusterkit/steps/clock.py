"""The host's clock agrees with this machine's."""

from __future__ import annotations

from clusterkit.facts import Clock
from clusterkit.steps.engine import LAUNCH, AtMost, Change, Fleet, Severity, State, Step


class ClockOffset(Step):
    """Clocks agree: logs are merged by time, and the first failure is found by it.

    Only what the clocks differ by for certain counts, beyond what the measurement itself may be wrong by.
    """

    name = "clock"
    tags = frozenset({LAUNCH})

    def skip(self, host: str, fleet: Fleet) -> str:
        """Recorded facts may come without a clock."""
        return "" if fleet.facts[host].clock else "not measured"

    def desired(self, host: str, fleet: Fleet) -> State:
        """Half a second."""
        return {"offset_s": AtMost(fleet.members[host].threshold("clock_warn_s"))}

    def actual(self, host: str, fleet: Fleet) -> State:
        """How far they are apart at least."""
        clock = fleet.facts[host].clock
        return {"offset_s": round(clock.certain_s, 3) if clock else None}

    def severity(self, change: Change) -> Severity:
        """Times are corrected by the measured offset, up to a point."""
        offset = change.actual["offset_s"]
        most = change.settings.threshold("clock_fail_s")
        return "failed" if isinstance(offset, float) and offset > most else "warning"

    def explain(self, change: Change) -> str:
        clock = change.facts.clock
        assert clock is not None, "without one there is no change"
        way = "ahead of" if clock.offset_s > 0 else "behind"
        return f"the clock is {abs(clock.offset_s):.2f} s ({_error(clock)}) {way} this machine's"

    def hint(self, change: Change) -> str:
        return "turn time synchronisation on: `timedatectl set-ntp true`, or chrony"


def _error(clock: Clock) -> str:
    """How wrong the measurement may be: half of the round trip's time (facts.py)."""
    return f"± {clock.error_s:.2f} s"
