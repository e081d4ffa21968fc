"""Node 0's decisions, from made-up states and times."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from clusterkit.node.decision import SETTLE, START_LEAD, Decider, View, cause
from clusterkit.node.plan import NO_RESTARTS, Restarts, Timeouts
from clusterkit.node.rootcause import lost_a_peer

TIMEOUTS = Timeouts(gate=30, join=300, node=20, grace=40)
CLOCK = 1_790_000_000.0  # Node 0's wall clock at monotonic time 0.
GLOO = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:4242\n"
State = dict[str, Any]


def rank(number: int, local: int, **ended: Any) -> State:
    known = {"rank": number, "local_rank": local, "started_at": CLOCK, "ended_at": None, "tail": ""}
    return {**known, "exit_code": None, "signal": None, "refused": None, **ended}


def node(number: int, state: str, ranks: Sequence[State] | None = None, **more: Any) -> State:
    ranks = list(ranks) if ranks is not None else [rank(2 * number, 0), rank(2 * number + 1, 1)]
    known = {"node_rank": number, "alias": f"gpu{number:02d}", "state": state, "ranks": ranks}
    return {**known, "failure": None, "clock_offset_s": 0.0, "stop_wanted": None, **more}


def failed(number: int, state: str, ranks: Sequence[State], offset: float = 0.0) -> State:
    """A node that reports its first failed rank, as the supervisor does."""
    ended = [entry for entry in ranks if entry["ended_at"] is not None]
    first = min(ended, key=lambda entry: float(entry["ended_at"]))
    failure = {**first, "kind": "rank", "at": first["ended_at"], "detail": ""}
    return node(number, state, ranks, failure=failure, clock_offset_s=offset)


class Game:
    """A decider with a clock that the test moves, and what node 0 knows of the nodes."""

    def __init__(
        self, nodes: int = 3, timeouts: Timeouts = TIMEOUTS, restarts: Restarts = NO_RESTARTS
    ) -> None:
        self.now = 0.0
        self.decider = Decider(timeouts, 0.0, restarts)
        self.states: list[State | None] = [node(number, "gate") for number in range(nodes)]
        self.heard: list[float | None] = [0.0] * nodes
        self.joined = [True] * nodes
        self.registered: list[bool | None] = [None] * nodes
        self.silent: set[int] = set()

    def step(self, seconds: float = 0.1) -> dict[str, Any]:
        """Time passes in small steps, as it does for the supervisor."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = min(end, self.now + 0.5)
            decision = self.look()
        return decision

    def look(self) -> dict[str, Any]:
        for number in range(len(self.states)):
            if number not in self.silent and self.heard[number] is not None:
                self.heard[number] = self.now
        views = [
            View(
                number,
                f"gpu{number:02d}",
                self.joined[number],
                self.heard[number],
                state,
                self.registered[number],
            )
            for number, state in enumerate(self.states)
        ]
        return self.decider.step(self.now, CLOCK + self.now, views)

    def all(self, state: str) -> None:
        self.states = [node(number, state) for number in range(len(self.states))]

    def run(self) -> Game:
        """Every rank of every node runs."""
        self.decider.go(self.now)
        assert self.step()["phase"] == "prepare"
        self.all("prepared")
        assert self.step()["phase"] == "start"
        self.all("running")
        assert self.step()["phase"] == "start"
        return self


def test_a_run_that_goes_well() -> None:
    game = Game()
    assert game.step(5)["phase"] == "gate"
    game.decider.go(game.now)
    assert game.step()["phase"] == "prepare"
    game.all("prepared")
    decision = game.step()
    assert decision["phase"] == "start"
    assert decision["start_at"] == pytest.approx(CLOCK + game.now + START_LEAD)
    game.all("running")
    game.step(1000)
    game.states[1] = node(1, "ended")
    assert game.step()["phase"] == "start"
    game.all("ended")
    decision = game.step()
    assert (decision["phase"], decision["outcome"], decision["cause"]) == ("done", "succeeded", None)


def test_the_gate_ends_without_a_word() -> None:
    game = Game()
    assert game.step(29)["phase"] == "gate"
    game.decider.keep(game.now)
    assert game.step(29)["phase"] == "gate"
    decision = game.step(2)
    assert (decision["phase"], decision["cause"]["kind"]) == ("stop", "gate")
    game.all("ended")
    assert game.step()["outcome"] == "failed"


def test_go_waits_for_a_node_that_has_not_joined() -> None:
    game = Game()
    game.states[2], game.heard[2], game.joined[2] = None, None, False
    game.decider.go(game.now)
    assert game.step(29)["phase"] == "gate"
    decision = game.step(2)
    assert (decision["phase"], decision["cause"]["alias"]) == ("stop", "gpu02")
    assert "gpu02" in decision["cause"]["detail"]
    # A node that was never heard is not waited for.
    game.states[0], game.states[1] = node(0, "ended"), node(1, "ended")
    assert game.step()["phase"] == "done"


def test_a_late_node_still_joins_after_go() -> None:
    game = Game()
    game.joined[1] = False
    game.decider.go(game.now)
    assert game.step(10)["phase"] == "gate"
    game.joined[1] = True
    assert game.step()["phase"] == "prepare"


def test_nobody_starts_while_one_is_not_prepared() -> None:
    game = Game()
    game.decider.go(game.now)
    game.step()
    game.all("prepared")
    game.states[1] = node(1, "gate")
    assert game.step(29)["phase"] == "prepare"
    decision = game.step(2)
    assert (decision["phase"], decision["cause"]["kind"], decision["cause"]["alias"]) == (
        "stop",
        "gate",
        "gpu01",
    )


def test_a_failure_while_preparing_starts_nobody() -> None:
    game = Game()
    game.decider.go(game.now)
    game.step()
    failure = {"kind": "launcher", "at": CLOCK, "detail": "no space left", "rank": None}
    game.states[1] = node(1, "gate", failure=failure)
    decision = game.step()
    assert (decision["phase"], decision["cause"]["kind"]) == ("stop", "launcher")
    assert decision["start_at"] is None


def test_a_killed_launcher_is_blamed_though_its_ranks_were_seen_to_end_first() -> None:
    game = Game().run()
    at = CLOCK + game.now
    died = {"kind": "launcher", "at": at + 0.02, "detail": "killed", "rank": None, "signal": 6}
    ranks = [rank(2, 0, ended_at=at, signal=15), rank(3, 1, ended_at=at + 0.01, signal=15)]
    game.states[1] = node(1, "running", ranks, failure=died)
    cause = game.step()["cause"]
    assert (cause["kind"], cause["alias"], cause["signal"]) == ("launcher", "gpu01", 6)


def test_a_failed_rank_stops_all_at_once() -> None:
    game = Game().run()
    at = CLOCK + game.now
    game.states[1] = failed(1, "running", [rank(2, 0), rank(3, 1, ended_at=at, exit_code=7)])
    decision = game.step()
    assert (decision["phase"], decision["grace"]) == ("stop", 40)
    assert (decision["cause"]["rank"], decision["cause"]["exit_code"]) == (3, 7)
    assert decision["cause"]["alias"] == "gpu01"


def test_a_rank_that_lost_its_peer_waits_for_the_one_that_failed() -> None:
    game = Game().run()
    at = CLOCK + game.now
    game.states[1] = failed(1, "running", [rank(2, 0, ended_at=at, exit_code=1, tail=GLOO), rank(3, 1)])
    assert game.step(SETTLE / 2)["phase"] == "start"
    game.states[2] = failed(2, "running", [rank(4, 0, ended_at=at + 0.5, exit_code=9), rank(5, 1)])
    decision = game.step()
    assert (decision["phase"], decision["cause"]["rank"], decision["cause"]["exit_code"]) == ("stop", 4, 9)


def test_a_rank_that_lost_its_peer_is_the_cause_if_nothing_else_failed() -> None:
    game = Game().run()
    at = CLOCK + game.now
    game.states[1] = failed(1, "running", [rank(2, 0, ended_at=at, exit_code=1, tail=GLOO), rank(3, 1)])
    decision = game.step(SETTLE + 0.6)
    assert (decision["phase"], decision["cause"]["rank"]) == ("stop", 2)


def test_a_silent_node_is_lost() -> None:
    game = Game().run()
    game.silent.add(2)
    heard = game.now
    assert game.step(19)["phase"] == "start"
    decision = game.step(2)
    assert (decision["phase"], decision["outcome"]) == ("stop", "lost")
    assert (decision["cause"]["alias"], decision["cause"]["node_rank"]) == ("gpu02", 2)
    assert decision["cause"]["at"] == pytest.approx(CLOCK + heard)
    game.states[0], game.states[1] = node(0, "ended"), node(1, "ended")
    decision = game.step()
    assert (decision["phase"], decision["outcome"], decision["cause"]["kind"]) == ("done", "lost", "lost")


def test_node_0_is_the_lost_one_if_it_hears_no_other() -> None:
    """Its cable is pulled: all the others are silent at once, and stop without it."""
    game = Game().run()
    game.silent = {1, 2}
    decision = game.step(21)
    assert (decision["phase"], decision["outcome"], decision["cause"]["alias"]) == ("stop", "lost", "gpu00")
    game.states[0] = node(0, "ended")
    decision = game.step(5)
    assert (decision["phase"], decision["cause"]["alias"]) == ("done", "gpu00")


def test_node_0_is_the_lost_one_also_if_the_others_fell_silent_one_after_the_other() -> None:
    game = Game().run()
    game.silent = {1}
    game.step(1)
    game.silent = {1, 2}
    assert game.step(19.5)["cause"]["alias"] == "gpu01"
    game.states[0] = node(0, "ended")
    assert game.step(5)["cause"]["alias"] == "gpu00"


def test_of_two_nodes_the_silent_one_is_lost() -> None:
    game = Game(nodes=2).run()
    game.silent = {1}
    assert game.step(21)["cause"]["alias"] == "gpu01"


def test_a_node_that_was_lost_is_the_cause_of_ranks_that_lost_their_peer() -> None:
    """A host dies; the others' ranks fail with a connection error long before it is declared lost."""
    game = Game().run()
    game.silent.add(2)
    at = CLOCK + game.now + 1
    game.states[1] = failed(1, "running", [rank(2, 0, ended_at=at, exit_code=1, tail=GLOO), rank(3, 1)])
    assert game.step(SETTLE + 1)["cause"]["rank"] == 2
    game.states[0] = node(0, "ended")
    game.states[1] = failed(1, "ended", [rank(2, 0, ended_at=at, exit_code=1, tail=GLOO), rank(3, 1)])
    decision = game.step(20)
    assert (decision["phase"], decision["outcome"]) == ("done", "lost")
    assert (decision["cause"]["kind"], decision["cause"]["alias"]) == ("lost", "gpu02")


def test_a_node_lost_after_a_failure_is_not_its_cause() -> None:
    game = Game().run()
    at = CLOCK + game.now
    game.states[1] = failed(1, "running", [rank(2, 0, ended_at=at, exit_code=3), rank(3, 1)])
    game.step()
    game.silent.add(2)
    game.states[0] = node(0, "ended")
    game.states[1] = failed(1, "ended", [rank(2, 0, ended_at=at, exit_code=3), rank(3, 1)])
    decision = game.step(21)
    assert (decision["outcome"], decision["cause"]["rank"]) == ("failed", 2)


def test_an_ended_node_cannot_be_lost() -> None:
    game = Game().run()
    game.states[2] = node(2, "ended")
    game.silent.add(2)
    assert game.step(100)["phase"] == "start"
    game.all("ended")
    assert game.step()["outcome"] == "succeeded"


def test_only_launchers_that_have_not_come_are_missing() -> None:
    """No rank starts anywhere before all launchers have met."""
    game = Game().run()
    waiting = [rank(number, 0, started_at=None) for number in range(3)]
    game.states = [node(number, "starting", [waiting[number]]) for number in range(3)]
    game.states[1] = node(1, "starting", [waiting[1]], master_problem="10.0.0.1:29401: refused")
    game.registered = [True, False, True]
    decision = game.step(301)
    assert (decision["cause"]["kind"], decision["cause"]["alias"]) == ("join", "gpu01")
    assert decision["cause"]["detail"] == (
        "after 300 s missing: gpu01 (its launcher cannot reach the master 10.0.0.1:29401: refused); "
        "joined: gpu00, gpu02"
    )


def test_ranks_that_never_start_end_in_a_join_timeout() -> None:
    game = Game().run()
    game.states[1] = node(1, "starting", [rank(2, 0), rank(3, 1, started_at=None)])
    assert game.step(295)["phase"] == "start"
    decision = game.step(10)
    assert (decision["cause"]["kind"], decision["cause"]["alias"]) == ("join", "gpu01")
    assert "missing: gpu01 (rank 3); joined: gpu00, gpu02" in decision["cause"]["detail"]


def test_a_persons_stop_is_a_stop_whatever_falls_then() -> None:
    game = Game().run()
    game.decider.stop(CLOCK + game.now, 5.0, cause("user", ""))
    decision = game.step()
    assert (decision["phase"], decision["grace"], decision["outcome"]) == ("stop", 5, "stopped")
    at = CLOCK + game.now
    game.states = [
        failed(n, "ended", [rank(2 * n, 0, ended_at=at, exit_code=1), rank(2 * n + 1, 1)]) for n in range(3)
    ]
    decision = game.step()
    assert (decision["phase"], decision["outcome"], decision["cause"]["kind"]) == ("done", "stopped", "user")


def test_a_second_stop_only_shortens_the_grace() -> None:
    game = Game().run()
    game.decider.stop(CLOCK, 30.0, cause("user", ""))
    game.decider.stop(CLOCK, 0.0, cause("stop", ""))
    decision = game.step()
    assert (decision["grace"], decision["cause"]["kind"]) == (0, "user")
    game.decider.stop(CLOCK, 99.0, cause("stop", ""))
    game.decider.stop(CLOCK, None, cause("stop", ""))
    assert game.step()["grace"] == 0


def test_a_stop_that_another_node_was_told_is_obeyed() -> None:
    game = Game().run()
    game.states[2] = node(2, "running", stop_wanted={"grace": 3.0, "cause": cause("stop", "")})
    decision = game.step()
    assert (decision["phase"], decision["grace"], decision["cause"]["kind"]) == ("stop", 3, "stop")


def test_a_pause_of_node_0_is_not_the_others_silence() -> None:
    game = Game().run()
    game.now += 15  # Stopped for 15 s: nothing was read meanwhile.
    game.silent = {1, 2}
    assert game.look()["phase"] == "start"
    assert game.step(19)["phase"] == "start"
    game.silent.clear()
    assert game.step(20)["phase"] == "start"


def test_a_long_pause_of_node_0_is_its_own_loss() -> None:
    game = Game().run()
    game.now += 60
    game.silent = {1, 2}
    decision = game.look()
    assert (decision["phase"], decision["cause"]["kind"], decision["cause"]["node_rank"]) == (
        "stop",
        "lost",
        0,
    )
    game.states[0] = node(0, "ended")
    decision = game.step(21)
    assert (decision["phase"], decision["cause"]["node_rank"]) == ("done", 0)


@pytest.mark.parametrize("seed", range(100))
def test_the_root_is_found_whatever_the_order_and_the_clocks(seed: int) -> None:
    """One rank fails; the others follow within seconds, each in its own way; news arrive in any order."""
    rng = random.Random(seed)
    nodes = rng.randint(2, 6)
    game = Game(nodes).run()
    offsets = [0.0, *(rng.uniform(-3, 3) for _ in range(nodes - 1))]
    root = rng.randrange(2 * nodes)
    failed_at = CLOCK + game.now
    game.step(6)  # All of it has happened before the first news of it come.
    # In half of the games the failed rank takes its time to end, so that its peers seem to fail first.
    root_ended_at = failed_at + rng.choice([0.0, rng.uniform(0.1, 1.5)])
    ends: dict[int, State] = {root: _root_end(rng, root_ended_at)}
    for number in range(2 * nodes):
        if number != root and rng.random() < 0.7:
            ends[number] = _follower_end(rng, failed_at, root_ended_at, number // 2 == root // 2)
    ranks = [
        rank(n, n % 2, **{**ends[n], "ended_at": ends[n]["ended_at"] + offsets[n // 2]})
        if n in ends
        else rank(n, n % 2)
        for n in range(2 * nodes)
    ]
    order = list(range(nodes))
    rng.shuffle(order)
    for number in order:
        mine = ranks[2 * number : 2 * number + 2]
        if any(entry["ended_at"] is not None for entry in mine):
            measured = offsets[number] + rng.uniform(-0.002, 0.002)
            game.states[number] = failed(number, "running", mine, measured)
        game.step(rng.choice([0.05, 0.2]))
    game.step(SETTLE + 1)
    stopped_at = CLOCK + game.now
    for number in range(nodes):
        mine = [
            entry if entry["ended_at"] is not None else _stopped(rng, entry, stopped_at + offsets[number])
            for entry in ranks[2 * number : 2 * number + 2]
        ]
        game.states[number] = failed(number, "ended", mine, offsets[number] + rng.uniform(-0.002, 0.002))
    decision = game.step()
    assert (decision["phase"], decision["outcome"]) == ("done", "failed")
    assert decision["cause"]["rank"] == root
    assert decision["cause"]["at"] == pytest.approx(root_ended_at, abs=0.01)


def _root_end(rng: random.Random, at: float) -> State:
    how = rng.choice([{"exit_code": 7}, {"exit_code": 1}, {"signal": 11}, {"signal": 9}])
    return {"ended_at": at, "tail": "RuntimeError: loss is NaN\n", **how}


def _follower_end(rng: random.Random, failed_at: float, root_ended_at: float, same_node: bool) -> State:
    if rng.random() < 0.7:
        how = rng.choice([{"exit_code": 1}, {"signal": 6}])
        return {"ended_at": failed_at + rng.uniform(0.01, 3), "tail": GLOO, **how}
    if same_node:  # Its own launcher ends it, gently and then not.
        how, after = rng.choice([({"signal": 15}, 0.1), ({"exit_code": 143}, 0.5), ({"signal": 9}, 3.0)])
        return {"ended_at": root_ended_at + after + rng.uniform(0, 1), **how}
    return {"ended_at": root_ended_at + rng.uniform(0.05, 2), "exit_code": 1, "tail": "AssertionError\n"}


def _stopped(rng: random.Random, entry: State, at: float) -> State:
    how = rng.choice([{"signal": 15}, {"signal": 9}, {"exit_code": 0}, {"exit_code": 143}, {"exit_code": 1}])
    return {**entry, "ended_at": at + rng.uniform(0.05, 5), **how}


@pytest.mark.parametrize(
    "tail",
    [
        "gloo::IoException: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting",
        "write: Broken pipe",
    ],
)
def test_words_of_a_rank_that_lost_its_peer(tail: str) -> None:
    assert lost_a_peer(tail)


@pytest.mark.parametrize(
    "tail",
    [
        "RuntimeError: CUDA out of memory",
        "NCCL version 2.19.3+cuda11.8",
        "W0101 process_group_gloo.cc: using gloo backend",
        "Killed",
    ],
)
def test_words_of_a_rank_that_failed_itself(tail: str) -> None:
    assert not lost_a_peer(tail)


def with_servers() -> Game:
    """Running: node 0 has a server and rank 0, node 1 a server alone, node 2 rank 1."""
    game = Game()
    game.step()
    game.decider.go(game.now)
    game.step()
    game.states = [node(number, "prepared", []) for number in range(3)]
    game.step()
    serving = {"server": 0, "started_at": CLOCK, "ended_at": None, "exit_code": None, "signal": None}
    game.states = [
        node(0, "running", [rank(0, 0)], servers=[serving]),
        node(1, "running", [], servers=[{**serving, "server": 1}]),
        node(2, "running", [rank(1, 0)], servers=[]),
    ]
    assert game.step()["phase"] == "start"
    return game


def test_a_job_with_servers_ends_with_its_trainers() -> None:
    game = with_servers()
    done = {"ended_at": CLOCK + 9, "exit_code": 0}
    game.states[2] = node(2, "ended", [rank(1, 0, **done)], servers=[])
    assert game.step()["phase"] == "start"
    assert game.states[0] is not None
    game.states[0]["ranks"] = [rank(0, 0, **done)]
    decided = game.step()
    assert (decided["phase"], decided["outcome"], decided["cause"]) == ("stop", "succeeded", None)
    assert game.step(5)["phase"] == "stop"
    killed = {"server": 0, "ended_at": CLOCK + 10, "started_at": CLOCK, "exit_code": None, "signal": 15}
    for number in (0, 1):
        game.states[number] = node(number, "ended", [], servers=[killed])
    decided = game.step()
    assert (decided["phase"], decided["outcome"], decided["cause"]) == ("done", "succeeded", None)


def test_a_server_that_fails_is_the_cause() -> None:
    game = with_servers()
    ended = {"kind": "server", "rank": None, "server": 1, "exit_code": 3, "signal": None, "at": CLOCK + 9}
    game.states[1] = node(1, "running", [], servers=[], failure={**ended, "detail": "no memory"})
    lost = {"ended_at": CLOCK + 9.5, "exit_code": 1, "tail": "Connection refused"}
    game.states[2] = node(2, "running", [rank(1, 0, **lost)], servers=[])
    decided = game.step()
    assert decided["phase"] == "stop"
    cause = decided["cause"]
    assert (cause["kind"], cause["server"], cause["alias"], cause["exit_code"]) == ("server", 1, "gpu01", 3)
