"""The tournament of streams: each round every host has one partner, and each direction its own time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from clusterkit.between import matrix as matrices
from clusterkit.between.conversation import Conversation
from clusterkit.between.matrix import Matrix
from clusterkit.between.pairs import Pair, disjoint, rounds
from clusterkit.between.peers import Peer
from clusterkit.errors import HostError
from clusterkit.preflight import Doing
from clusterkit.remote import fan_out

# Connecting, and how late the other side may be with its count (node/reach/streaming.py), and the answer.
_MARGIN_S = 15.0


class Tournament:
    """Streams between hosts that listen; `doors` are the ports that were found open, by (from, to)."""

    def __init__(
        self,
        talks: Mapping[str, Conversation],
        peers: Mapping[str, Peer],
        doors: Mapping[Pair, int],
        seconds: float,
        doing: Doing,
        cancel: threading.Event,
    ) -> None:
        self._talks = talks
        self._peers = peers
        self._doors = doors
        self._seconds = seconds
        self._doing = doing
        self._cancel = cancel
        self._failures: dict[Pair, str] = {}
        self.lost: dict[str, HostError] = {}
        """Hosts that answered no more while it was played; nothing is said about their pairs."""

    def play(self, hosts: Sequence[str]) -> Matrix:
        """Every pair in both directions; slow ones are measured once more, and the better result is kept.

        Raises Interrupted.
        """
        rates: dict[Pair, float] = {}
        played = rounds(hosts)
        for number, games in enumerate(played, 1):
            what = f"measuring bandwidth, round {number} of {len(played)}"
            rates.update(self._round(what, games))
            rates.update(self._round(what, [(to, source) for source, to in games]))
        measured = self._matrix(hosts, rates)
        again: dict[Pair, float] = {}
        for games in disjoint(matrices.worth_repeating(measured)):
            again.update(self._round("measuring once more what was slow", games))
        return matrices.better(measured, again)

    def _matrix(self, hosts: Sequence[str], rates: Mapping[Pair, float]) -> Matrix:
        failures = {pair: why for pair, why in self._failures.items() if not self.lost.keys() & set(pair)}
        kept = {pair: rate for pair, rate in rates.items() if not self.lost.keys() & set(pair)}
        return Matrix(tuple(host for host in hosts if host not in self.lost), kept, failures)

    def _round(self, what: str, games: Sequence[Pair]) -> dict[Pair, float]:
        """Bytes per second of each pair; each sender is in one pair."""
        waiting = {
            source: (source, to)
            for source, to in games
            if (source, to) in self._doors and not self.lost.keys() & {source, to}
        }
        self._doing(what, list(waiting))
        outcome = fan_out(waiting, self._stream, forks=len(waiting), cancel=self._cancel)
        self.lost.update(outcome.bad)
        rates = {}
        for source, answer in outcome.good.items():
            if "error" in answer:
                self._failures[waiting[source]] = str(answer["error"])
            else:
                rates[waiting[source]] = answer["bytes"] / answer["seconds"]
        return rates

    def _stream(self, pair: Pair) -> Mapping[str, Any]:
        source, to = pair
        return self._talks[source].ask(
            "stream",
            self._seconds + _MARGIN_S,
            ip=self._peers[to].ip,
            port=self._doors[pair],
            seconds=self._seconds,
        )
