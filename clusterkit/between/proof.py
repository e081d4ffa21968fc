"""Use case: prove between the hosts that a job's connections come about, and measure them.

    begin      the program runs on every host and listens: on the master port, in port_range, on any port
    connect    every ordered pair (a sample of them beyond 32 hosts), with large datagrams beside it
    path       a TCP transfer for the pairs that datagrams said nothing about
    bandwidth  a tournament, if asked for

One stream a host serves throughout. Nothing is written on any host, and the program ends with its stream.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from clusterkit.between import bandwidth, connections, paths, program, roundtrips
from clusterkit.between import matrix as matrices
from clusterkit.between.blame import Blame, Needed, nobody_knows
from clusterkit.between.connections import Attempt
from clusterkit.between.conversation import Conversation
from clusterkit.between.matrix import Matrix
from clusterkit.between.pairs import Pair, ordered_pairs
from clusterkit.between.paths import Path
from clusterkit.between.peers import Peer, ephemeral, peers, ports
from clusterkit.errors import HostError, TopologyError
from clusterkit.preflight import Doing, Finding
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.steps import Fleet

T = TypeVar("T")

# Two requests of the kernel's own pace (0 s and 1 s) go unanswered before somebody is called silent.
CONNECT_TIMEOUT_S = 2.5
# How many connections one host has under way (node/reach/connecting.py), and what else an answer takes.
_AT_ONCE = 300
_ANSWER_S = 15.0


@dataclass(frozen=True)
class Options:
    """How to prove. `stream_s` is how long each stream of the bandwidth test flows."""

    forks: int = 64
    all_pairs: bool = False
    bandwidth: bool = False
    stream_s: float = 0.3
    blame: Blame = nobody_knows


@dataclass(frozen=True)
class Proof:
    """What was found; `round_trips` in seconds by (from, to), `bandwidth` only if it was asked for."""

    findings: tuple[Finding, ...]
    round_trips: Mapping[Pair, float] = field(default_factory=dict)
    bandwidth: Matrix | None = None


def prove(
    fleet: Fleet,
    hosts: Sequence[str],
    remotes: Mapping[str, Remote],
    options: Options,
    doing: Doing,
    cancel: threading.Event,
) -> Proof:
    """Everything that can be seen between those of `hosts` that answered. Raises Interrupted.

    A host that fails on the way is one finding; the others are proved without it.
    """
    try:
        chosen = peers(fleet, hosts)
    except (TopologyError, HostError) as error:
        return Proof((Finding(connections.NAME, "unknown", detail=error.message, hint=error.hint),))
    if len(chosen) < 2:
        return Proof((Finding(connections.NAME, "skipped", detail="there is no second host to reach"),))
    proving = _Proving(fleet, chosen, remotes, options, doing, cancel)
    with proving.conversations():
        return proving.proof()


@dataclass(frozen=True)
class _Listening:
    """Where a host listens."""

    ports: Mapping[str, int]
    datagrams: int


class _Proving:
    """One proof under way."""

    def __init__(
        self,
        fleet: Fleet,
        chosen: Sequence[Peer],
        remotes: Mapping[str, Remote],
        options: Options,
        doing: Doing,
        cancel: threading.Event,
    ) -> None:
        self._fleet = fleet
        self._peers = {peer.alias: peer for peer in chosen}
        self._remotes = remotes
        self._options = options
        self._doing = doing
        self._cancel = cancel
        self._token = secrets.token_hex(8)
        self._program = program.build()
        self._talks: dict[str, Conversation] = {}
        self._listening: dict[str, _Listening] = {}
        self._findings: list[Finding] = []

    @contextmanager
    def conversations(self) -> Iterator[None]:
        """The program runs on every host that can run it, and listens; afterwards it runs nowhere."""
        try:
            answers = self._each("starting the proof between the hosts", self._peers, self._begin)
            for alias, answer in answers.items():
                self._note(alias, answer)
            yield
        finally:
            for talk in self._talks.values():
                talk.close()

    def proof(self) -> Proof:
        """All of it. Hosts that are lost on the way are left out of what is judged."""
        attempts, tried = self._connect()
        attempts = self._half_open(attempts)
        tried = self._transfer(tried, attempts)
        measured = self._bandwidth(attempts) if self._options.bandwidth else None
        attempts = [each for each in attempts if self._both_here(each.source, each.to)]
        tried = [each for each in tried if self._both_here(each.source, each.to)]
        trips = _round_trips(attempts)
        found = connections.judge(attempts, self._options.blame, self._needed(), CONNECT_TIMEOUT_S)
        found += paths.judge(tried) + roundtrips.judge(trips)
        if measured is not None:
            found += matrices.judge(measured, {peer.alias: peer.speed for peer in self._peers.values()})
        return Proof((*self._findings, *found), trips, measured)

    # --- the hosts ---------------------------------------------------------------------------------

    def _begin(self, peer: Peer) -> Mapping[str, Any]:
        settings, size = self._fleet.members[peer.alias], len(self._program)
        script = program.script(peer.python, size)
        if peer.runtime:
            script = program.script_in_image(peer.runtime, settings.image or "", size)
        talk = Conversation.begin(self._remotes[peer.alias], script, self._program)
        self._talks[peer.alias] = talk
        wanted = ports(self._fleet, peer.alias)
        return talk.ask("listen", _ANSWER_S, token=self._token, alias=peer.alias, ip=peer.ip, ports=wanted)

    def _note(self, alias: str, answer: Mapping[str, Any]) -> None:
        self._listening[alias] = _Listening(answer["ports"], int(answer["datagrams"]))
        problems: Mapping[str, str] = answer["problems"]
        for kind, why in problems.items():
            text = f"nothing could listen on {self._peers[alias].ip} ({kind} port): {why}"
            hint = "see what holds these ports: ss -ltnp"
            self._findings.append(Finding(connections.NAME, "unknown", to=alias, detail=text, hint=hint))

    def _each(self, what: str, chosen: Mapping[str, T], ask: Callable[[T], Any]) -> dict[str, Any]:
        """What `ask` gives for each host; a host where it fails is a finding, and out of the proof."""
        waiting = list(chosen)

        def done(alias: str) -> None:
            waiting.remove(alias)
            self._doing(what, waiting)

        self._doing(what, waiting)
        forks = self._options.forks
        outcome = fan_out(chosen, ask, forks=forks, cancel=self._cancel, on_done=done)
        for alias, error in outcome.bad.items():
            self._lose(alias, error)
        return outcome.good

    def _lose(self, alias: str, error: HostError) -> None:
        self._listening.pop(alias, None)
        self._findings.append(Finding("proof", "failed", alias, "", error.message, error.hint))

    def _both_here(self, source: Peer, to: Peer) -> bool:
        return source.alias in self._listening and to.alias in self._listening

    def _needed(self) -> Needed:
        alias = next(iter(self._peers))
        return Needed(self._fleet.members[alias].port_range, ephemeral(self._fleet, alias))

    # --- connections and paths ---------------------------------------------------------------------

    def _connect(self) -> tuple[list[Attempt], list[Path]]:
        """Every pair on every port, and datagrams in the meantime."""
        wanted: dict[str, list[str]] = {alias: [] for alias in self._listening}
        for source, to in ordered_pairs(list(self._listening), every=self._options.all_pairs):
            wanted[source].append(to)

        def ask(alias: str) -> tuple[list[Attempt], list[Path]]:
            return self._visit(self._peers[alias], [self._peers[other] for other in wanted[alias]])

        visits = self._each("connecting the hosts with each other", _same(wanted), ask)
        attempts = [attempt for made, _ in visits.values() for attempt in made]
        return attempts, [path for _, made in visits.values() for path in made]

    def _visit(self, source: Peer, others: Sequence[Peer]) -> tuple[list[Attempt], list[Path]]:
        targets = [
            (other, kind, port)
            for kind in ("master", "low", "high", "ephemeral")
            for other in others
            if (port := self._listening[other.alias].ports.get(kind))
        ]
        # One machine's loopback carries packets that no UDP datagram can fill.
        reached = [other for other in others if self._listening[other.alias].datagrams and not other.loopback]
        answer = self._ask_connect(
            source,
            [[other.alias, other.ip, port, 0] for other, _, port in targets],
            [
                [other.ip, self._listening[other.alias].datagrams, paths.common_mtu(source, other)]
                for other in reached
            ],
        )
        attempts = [
            Attempt(source, other, kind, port, result)
            for (other, kind, port), result in zip(targets, answer["results"], strict=True)
        ]
        made = [Path(source, other, said) for other, said in zip(reached, answer["datagrams"], strict=True)]
        return attempts, made

    def _ask_connect(self, source: Peer, targets: list[Any], datagrams: list[Any]) -> Mapping[str, Any]:
        waves = 1 + len(targets) // _AT_ONCE
        return self._talks[source.alias].ask(
            "connect",
            _ANSWER_S + waves * CONNECT_TIMEOUT_S,
            targets=targets,
            datagrams=datagrams,
            timeout=CONNECT_TIMEOUT_S,
        )

    def _half_open(self, attempts: list[Attempt]) -> list[Attempt]:
        """For the silent ones, whether the request has arrived: then it is the answer that is dropped."""
        silent = {each.to.alias for each in attempts if each.result["outcome"] == "silent"}
        asked = _same(sorted(silent & set(self._listening)))
        if not asked:
            return attempts

        def ask(alias: str) -> list[list[Any]]:
            return list(self._talks[alias].ask("half_open", _ANSWER_S)["peers"])

        seen = self._each("looking for half-open connections", asked, ask)
        arrived = {(alias, ip, port) for alias, found in seen.items() for ip, port in found}
        return [
            replace(each, answered=(each.to.alias, each.source.ip, each.port) in arrived) for each in attempts
        ]

    def _transfer(self, tried: list[Path], attempts: Sequence[Attempt]) -> list[Path]:
        """A transfer over TCP for each pair that datagrams did not settle, if it connects at all."""
        doors = {(each.source.alias, each.to.alias): each.port for each in attempts if each.open}
        settled = [path for path in tried if path.told_by_datagrams]
        open_ones: dict[str, list[Path]] = {}
        for path in tried:
            known = (path.source.alias, path.to.alias) in doors
            if not path.told_by_datagrams and known and path.source.alias in self._listening:
                open_ones.setdefault(path.source.alias, []).append(path)
        if not open_ones:
            return settled

        def ask(of_source: list[Path]) -> list[Path]:
            targets = [
                [path.to.alias, path.to.ip, doors[path.source.alias, path.to.alias], paths.TRANSFER_BYTES]
                for path in of_source
            ]
            results = self._ask_connect(of_source[0].source, targets, [])["results"]
            return [replace(path, transfer=result) for path, result in zip(of_source, results, strict=True)]

        answers = self._each("trying large packets", open_ones, ask)
        return settled + [path for made in answers.values() for path in made]

    # --- bandwidth ---------------------------------------------------------------------------------

    def _bandwidth(self, attempts: Sequence[Attempt]) -> Matrix:
        doors = {(each.source.alias, each.to.alias): each.port for each in attempts if each.open}
        tried = {(each.source.alias, each.to.alias) for each in attempts}
        for source, to in ordered_pairs(list(self._listening), every=True):
            # Beyond the sample nothing was tried; the port that the kernel chose is as good as any.
            port = self._listening[to].ports.get("ephemeral")
            if port and (source, to) not in tried:
                doors[source, to] = port
        tournament = bandwidth.Tournament(
            self._talks, self._peers, doors, self._options.stream_s, self._doing, self._cancel
        )
        measured = tournament.play(list(self._listening))
        for alias, error in tournament.lost.items():
            self._lose(alias, error)
        return measured


def _same(aliases: Sequence[str] | Mapping[str, Any]) -> dict[str, str]:
    return {alias: alias for alias in aliases}


def _round_trips(attempts: Sequence[Attempt]) -> dict[Pair, float]:
    """The kernel's own measurement of each handshake, in seconds: the best of each pair's ports."""
    found: dict[Pair, float] = {}
    for attempt in attempts:
        trip = attempt.result.get("round_trip_us")
        if attempt.open and trip:
            pair = (attempt.source.alias, attempt.to.alias)
            found[pair] = min(found.get(pair, 1e9), trip / 1e6)
    return found
