"""How far this host's clock is from node 0's, measured on the messages that travel anyway."""

from typing import List, NamedTuple, Optional

# How far two clocks may drift apart, or be slewed, over the samples that are kept.
_DRIFT = 0.02


class Sample(NamedTuple):
    """One exchange: the offset it showed, and its round trip, both in seconds."""

    offset: float
    round_trip: float


class ClockOffset:
    """This host's clock minus node 0's: the sample with the shortest round trip of the newest ones.

    NTP's rule (RFC 5905, section 8): the error of a sample is at most half its round trip.
    """

    _KEPT = 32

    def __init__(self) -> None:
        self._samples: List[Sample] = []

    def add(self, sent: float, received_there: float, sent_there: float, received: float) -> None:
        """Note an exchange; `sent` and `received` are our clock, the other two are node 0's."""
        round_trip = (received - sent) - (sent_there - received_there)
        if round_trip < 0:
            return  # A clock was set in between.
        sample = Sample(((sent - received_there) + (received - sent_there)) / 2, round_trip)
        if self._contradicts(sample):
            self._samples = []  # One of the two clocks was set: what was known is no longer true.
        self._samples.append(sample)
        del self._samples[: -self._KEPT]

    def _contradicts(self, sample: Sample) -> bool:
        best = self.best
        if best is None:
            return False
        return abs(sample.offset - best.offset) > (sample.round_trip + best.round_trip) / 2 + _DRIFT

    @property
    def count(self) -> int:
        """How many exchanges the offset rests on."""
        return len(self._samples)

    @property
    def best(self) -> Optional[Sample]:
        """The sample with the shortest round trip."""
        return min(self._samples, key=lambda sample: sample.round_trip, default=None)

    @property
    def offset(self) -> float:
        """Seconds that this host's clock is ahead of node 0's; 0 while nothing is known."""
        return self.best.offset if self.best else 0.0

    @property
    def error(self) -> Optional[float]:
        """The offset is right within this many seconds; None while nothing is known."""
        return self.best.round_trip / 2 if self.best else None
