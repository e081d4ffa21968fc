"""Attempts of one run: when a job is started again, and what each attempt has of its own."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from clusterkit.node import attempts
from clusterkit.node.decision import cause
from clusterkit.node.plan import Restarts

from .loopback import cluster, wait_for
from .test_decision import CLOCK, Game, failed, node, rank
from .test_runs import SLEEP

RESTARTS = Restarts(most=2, wait=5, longest_wait=60)

# Fails as often as its first argument says, then succeeds.
FLAKY = """#!/bin/sh
echo attempt $CLUSTERKIT_ATTEMPT of rank $PADDLE_TRAINER_ID, token $TOKEN, master $MASTER
if [ $PADDLE_TRAINER_ID = 3 ] && [ $CLUSTERKIT_ATTEMPT -lt {failures} ]; then sleep 0.3; exit {code}; fi
[ $CLUSTERKIT_ATTEMPT -lt {failures} ] && exec sleep 60
exit 0
"""


def fail_rank(game: Game, attempt: int, code: int = 7) -> None:
    """Rank 3 of this attempt fails, and every node has ended its part."""
    ended = [rank(2, 0), rank(3, 1, ended_at=CLOCK + game.now, exit_code=code)]
    game.states[1] = {**failed(1, "running", ended), "attempt": attempt}
    game.step()
    game.states = [node(number, "ended", attempt=attempt) for number in range(3)]
    game.states[1] = {**failed(1, "ended", ended), "attempt": attempt}


def at_gate(game: Game, attempt: int) -> None:
    game.states = [node(number, "gate", attempt=attempt) for number in range(3)]


def test_a_failed_rank_is_started_again_after_the_back_off() -> None:
    game = Game(restarts=RESTARTS).run()
    fail_rank(game, 0)
    decision = game.step()
    assert (decision["phase"], decision["attempt"], decision["outcome"]) == ("gate", 1, None)
    assert [(each["attempt"], each["outcome"], each["cause"]["rank"]) for each in decision["history"]] == [
        (0, "failed", 3)
    ]
    at_gate(game, 1)
    assert game.step(4.5)["phase"] == "gate"
    assert game.step(1)["phase"] == "prepare"


def test_each_back_off_is_longer_and_the_last_failure_ends_the_run() -> None:
    game = Game(restarts=RESTARTS).run()
    for attempt, wait in ((0, 5), (1, 10)):
        fail_rank(game, attempt)
        assert game.step()["attempt"] == attempt + 1
        at_gate(game, attempt + 1)
        assert game.step(wait - 1)["phase"] == "gate"
        assert game.step(2)["phase"] == "prepare"
        game.states = [node(number, "prepared", attempt=attempt + 1) for number in range(3)]
        assert game.step()["phase"] == "start"
    fail_rank(game, 2)
    decision = game.step()
    assert (decision["phase"], decision["attempt"], decision["outcome"]) == ("done", 2, "failed")
    assert decision["cause"]["exit_code"] == 7


def test_the_back_off_has_a_limit() -> None:
    waits = [attempts.wait_before(RESTARTS, number) for number in (1, 2, 3, 4, 5, 6, 1000)]
    assert waits == [5, 10, 20, 40, 60, 60, 60]


def test_what_a_node_says_about_the_last_attempt_is_not_taken_for_this_one() -> None:
    game = Game(restarts=RESTARTS).run()
    fail_rank(game, 0)
    game.step()
    last_words = game.states[1]
    at_gate(game, 1)
    game.states[1] = last_words
    assert game.step(20)["phase"] == "gate"
    decision = game.step(30)
    assert (decision["phase"], decision["cause"]["kind"], decision["cause"]["alias"]) == (
        *("stop", "gate"),
        "gpu01",
    )


def test_a_server_that_fails_is_as_good_a_reason_as_a_rank() -> None:
    why = {**cause("server", "", 1, "gpu01"), "server": 0, "signal": 9}
    assert attempts.is_worth(why)
    assert not attempts.is_worth({**why, "signal": None, "exit_code": 127})


@pytest.mark.parametrize("code", attempts.USAGE_ERRORS)
def test_a_usage_error_is_not_repeated(code: int) -> None:
    game = Game(restarts=RESTARTS).run()
    fail_rank(game, 0, code)
    assert game.step()["phase"] == "done"


@pytest.mark.parametrize(("attempts_before", "phase"), [(0, "done"), (1, "gate")])
def test_a_launcher_that_cannot_be_started_is_tried_again_only_once_it_could(
    attempts_before: int, phase: str
) -> None:
    """As a container: a volume that is not there, or a daemon that is down for a while."""
    game = Game(restarts=RESTARTS)
    if attempts_before:
        game.run()
        fail_rank(game, 0)
        game.step()
        at_gate(game, 1)
        assert game.step(6)["phase"] == "prepare"
    else:
        game.decider.go(game.now)
        assert game.step()["phase"] == "prepare"
    failure = {
        "kind": "launcher",
        "rank": None,
        "exit_code": 1,
        "signal": None,
        "at": CLOCK,
        "detail": "down",
    }
    game.states[1] = node(1, "gate", attempt=attempts_before, failure=failure)
    assert game.step()["phase"] == "stop"
    game.states = [node(number, "ended", attempt=attempts_before) for number in range(3)]
    game.states[1] = node(1, "ended", attempt=attempts_before, failure=failure)
    assert game.step()["phase"] == phase


@pytest.mark.parametrize("kind", ["user", "stop"])
def test_a_stopped_run_is_not_started_again(kind: str) -> None:
    game = Game(restarts=RESTARTS).run()
    game.decider.stop(CLOCK + game.now, None, cause(kind, ""))
    game.all("ended")
    decision = game.step()
    assert (decision["phase"], decision["outcome"]) == ("done", "stopped")


def test_a_stop_after_the_failure_counts() -> None:
    game = Game(restarts=RESTARTS).run()
    ended = [rank(2, 0), rank(3, 1, ended_at=CLOCK + game.now, exit_code=7)]
    game.states[1] = failed(1, "running", ended)
    assert game.step()["phase"] == "stop"
    game.decider.stop(CLOCK + game.now, 1.0, cause("user", ""))
    game.all("ended")
    game.states[1] = failed(1, "ended", ended)
    assert game.step()["phase"] == "done"


def test_a_stop_in_the_back_off_ends_the_run() -> None:
    game = Game(restarts=RESTARTS).run()
    fail_rank(game, 0)
    game.step()
    at_gate(game, 1)
    game.decider.stop(CLOCK + game.now, None, cause("user", ""))
    assert game.step()["phase"] == "stop"
    game.states = [node(number, "ended", attempt=1) for number in range(3)]
    decision = game.step()
    assert (decision["phase"], decision["outcome"], decision["attempt"]) == ("done", "stopped", 1)


@pytest.mark.parametrize("pause", [1.0, 8.0], ids=["in the back-off", "after it"])
def test_a_node_that_is_lost_at_the_gate_of_the_next_attempt(pause: float) -> None:
    game = Game(restarts=RESTARTS).run()
    fail_rank(game, 0)
    game.step()
    at_gate(game, 1)
    game.states[2] = node(2, "ended", attempt=0)
    game.step(pause)
    game.silent.add(2)
    game.joined[2] = False
    assert game.step(20)["phase"] == "gate"
    decision = game.step(1)
    assert (decision["phase"], decision["outcome"], decision["cause"]["alias"]) == ("stop", "lost", "gpu02")
    game.states[:2] = [node(0, "ended", attempt=1), node(1, "ended", attempt=1)]
    decision = game.step()
    assert (decision["phase"], decision["outcome"]) == ("done", "lost")


def test_a_process_that_nothing_ends_forbids_a_restart() -> None:
    game = Game(restarts=RESTARTS).run()
    fail_rank(game, 0)
    game.states[2] = node(2, "ended", left=[4711])
    assert game.step()["phase"] == "done"


def test_the_job_runs_again_with_logs_and_secrets_of_its_own(tmp_path: Path) -> None:
    with cluster(tmp_path, FLAKY.format(failures=2, code=7), restarts=3) as run:
        nodes = run.start_all()
        nodes[0].say({"command": "go"})
        states = [attached.wait_end(60) for attached in nodes]
        decision = states[0]["decision"]
        assert (decision["outcome"], decision["attempt"]) == ("succeeded", 2)
        ends = [
            (each["outcome"], each["cause"]["rank"], each["cause"]["exit_code"])
            for each in decision["history"]
        ]
        assert ends == [("failed", 3, 7)] * 2
        assert [state["attempt"] for state in states] == [2, 2]
        for number, attached in enumerate(nodes):
            for each in run.ranks[number]:
                for attempt, name in enumerate((f"{each}", f"1:{each}", f"2:{each}")):
                    words = (
                        f"attempt {attempt} of rank {each}, token a secret, master 127.0.0.2:{run.port + 1}\n"
                    )
                    assert attached.logs[name] == words.encode()
            assert attached.states[-1]["ranks"][0]["log"].endswith("/attempt-2/logs/workerlog.0")
            assert not (run.run_dir(number) / "secrets.json").exists()
        assert run.left() == {}
        past = run.attach(1, follow={"2": {"offset": 0, "attempt": 1}, "3": {"offset": 0}}, wait=False)
        past.wait_end(10)
        assert sorted(past.logs) == ["1:2", "2:3"]


def test_a_killed_launcher_starts_the_job_again_and_a_stop_ends_it(tmp_path: Path) -> None:
    with cluster(tmp_path, SLEEP, restarts=5) as run:
        nodes = run.go()
        [launcher] = [pid for pid, words in run.left(1).items() if "fake_launcher" in words]
        os.kill(launcher, 9)
        wait_for(lambda: all(_runs(each.state, 1) for each in nodes), 30, "attempt 1 runs")
        assert nodes[0].state["decision"]["history"][0]["cause"]["kind"] == "launcher"
        assert run.stop(1)["stopped"]
        decision = nodes[0].wait_end(15)["decision"]
        assert (decision["outcome"], decision["attempt"]) == ("stopped", 1)
        assert run.left() == {}


def _runs(state: dict[str, Any], attempt: int) -> bool:
    return bool(state.get("attempt") == attempt and state["state"] == "running")


def test_a_port_that_is_held_is_replaced(tmp_path: Path) -> None:
    """Somebody listens on the master port when the job is started again."""
    with cluster(tmp_path, FLAKY.format(failures=1, code=7), restarts=1) as run, socket.socket() as other:
        other.bind(("127.0.0.2", run.port + 1))
        other.listen()
        nodes = run.start_all()
        nodes[0].say({"command": "go"})
        decision = nodes[0].wait_end(60)["decision"]
        nodes[1].wait_end(60)
        assert decision["outcome"] == "succeeded"
        assert decision["master_port"] in (run.port + 2, run.port + 3)
        assert f"master 127.0.0.2:{decision['master_port']}\n".encode() in nodes[1].logs["1:3"]
