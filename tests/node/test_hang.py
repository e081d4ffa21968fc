"""A job whose ranks all fall silent is named, and what is wanted is done about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterkit.node.plan import Timeouts
from clusterkit.node.silence import Silence, folded

from .loopback import cluster, wait_for
from .test_decision import CLOCK, Game, node, rank

TALKS_ONCE = (
    "#!/bin/sh\necho begun $CLUSTERKIT_ATTEMPT\n[ $CLUSTERKIT_ATTEMPT = 0 ] && exec sleep 60\nexit 0\n"
)
SLEEPS = "import time\nprint('begun', flush=True)\n\ndef stuck():\n    time.sleep(60)\n\nstuck()\n"


def state(number: int, sizes: tuple[int, int], **more: Any) -> dict[str, Any]:
    ranks = [rank(2 * number + local, local, bytes=size) for local, size in enumerate(sizes)]
    return node(number, "running", ranks, **more)


def test_one_rank_that_writes_is_enough() -> None:
    silence = Silence(10)
    for now in range(0, 60, 5):
        assert silence.look(now, 0, [state(0, (1, 1)), state(1, (1, now))]) is None
    assert silence.look(64, 0, [state(0, (1, 1)), state(1, (1, 55))]) is None
    assert silence.look(65, 0, [state(0, (1, 1)), state(1, (1, 55))]) == [0, 1, 2, 3]


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    silence = Silence(10)
    ended = node(0, "running", [rank(0, 0, ended_at=CLOCK, exit_code=0), rank(1, 1)])
    assert silence.look(0, 0, [ended]) is None
    assert silence.look(10, 0, [ended]) == [1]


def test_while_the_nodes_gather_silence_is_no_hang() -> None:
    silence = Silence(10)
    waiting = node(1, "starting", [rank(2, 0, started_at=None), rank(3, 1)])
    for now in (0, 50):
        assert silence.look(now, 0, [state(0, (1, 1)), waiting]) is None
        assert silence.look(now, 0, [state(0, (1, 1)), None]) is None


def test_what_we_slept_through_is_no_silence() -> None:
    silence = Silence(10)
    silence.look(0, 0, [state(0, (1, 1))])
    assert silence.look(100, 95, [state(0, (1, 1))]) is None
    assert silence.look(105, 95, [state(0, (1, 1))]) == [0, 1]


def test_no_limit_no_hang() -> None:
    silence = Silence(0)
    silence.look(0, 0, [state(0, (1, 1))])
    assert silence.look(1e6, 0, [state(0, (1, 1))]) is None


@pytest.mark.parametrize(("ranks", "text"), [([0], "0"), ([0, 1, 2], "0-2"), ([0, 2, 3, 7], "0,2-3,7")])
def test_ranks_are_folded(ranks: list[int], text: str) -> None:
    assert folded(ranks) == text


def test_a_hang_is_reported_and_taken_back() -> None:
    game = Game(timeouts=Timeouts(hang=60)).run()
    decision = game.step(61)
    assert (decision["phase"], decision["hang"]["ranks"]) == ("start", "0-5")
    assert decision["hang"]["since"] == pytest.approx(CLOCK + game.now - 60, abs=2)
    game.states[1] = state(1, (5, 0))
    assert game.step()["hang"] is None


def test_a_job_that_hangs_is_started_again(tmp_path: Path) -> None:
    with cluster(tmp_path, TALKS_ONCE, timeouts={"hang": 3}, restarts=1, on_hang="restart") as run:
        nodes = run.start_all()
        nodes[0].say({"command": "go"})
        decision = nodes[0].wait_end(60)["decision"]
        assert (decision["outcome"], decision["attempt"]) == ("succeeded", 1)
        [before] = decision["history"]
        assert (before["cause"]["kind"], before["cause"]["detail"]) == (
            "hang",
            "ranks 0-3 wrote nothing for 3 s",
        )


def test_a_job_that_hangs_is_stopped_and_not_started_again(tmp_path: Path) -> None:
    with cluster(tmp_path, TALKS_ONCE, timeouts={"hang": 1.5}, restarts=1, on_hang="stop") as run:
        decision = run.go()[0].wait_end(60)["decision"]
        assert (decision["outcome"], decision["cause"]["kind"], decision["attempt"]) == ("failed", "hang", 0)
        assert run.left() == {}


def test_the_stacks_of_a_job_that_hangs_are_kept(tmp_path: Path) -> None:
    more: dict[str, Any] = {"timeouts": {"hang": 1.5}, "on_hang": "dump", "script_name": "train.py"}
    with cluster(tmp_path, SLEEPS, **more) as run:
        nodes = run.go()
        files = [run.records(number) / "ranks" / f"{local}.stacks" for number in (0, 1) for local in (0, 1)]
        wait_for(lambda: all(f.exists() and "in stuck" in f.read_text() for f in files), 30, "all stacks")
        assert nodes[0].state["decision"]["phase"] == "start"
        assert [f.read_text().count("in stuck") for f in files] == [1, 1, 1, 1]
