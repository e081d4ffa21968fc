"""Equal lines of many ranks as one: side by side, and as they come in."""

from __future__ import annotations

import itertools
import random

from clusterkit.report.alike import LOOK_AHEAD, Alike, Window, merged


def side_by_side(logs: dict[int, list[bytes]]) -> list[tuple[tuple[int, ...], bytes]]:
    return [(each.processes, each.line) for each in merged(logs)]


def test_equal_lines_are_one_and_others_stay_in_their_order() -> None:
    logs = {
        0: [b"start", b"loss 0.9", b"epoch 1", b"end"],
        1: [b"start", b"loss 0.8", b"epoch 1", b"end"],
        2: [b"start", b"loss 0.8", b"epoch 1", b"warning", b"end"],
    }
    assert side_by_side(logs) == [
        ((0, 1, 2), b"start"),
        ((0,), b"loss 0.9"),
        ((1, 2), b"loss 0.8"),
        ((0, 1, 2), b"epoch 1"),
        ((2,), b"warning"),
        ((0, 1, 2), b"end"),
    ]


def test_lines_that_differ_in_their_time_alone_are_equal() -> None:
    logs = {
        0: [b"[2026-12-01 10:00:00,123] [INFO] go", b"W1201 10:00:00.123456 4711 a.cc:1] hot"],
        1: [b"[2026-12-01 10:00:01,999] [INFO] go", b"W1201 10:00:00.999999 4712 a.cc:1] hot"],
        2: [b"[2026-12-01 10:00:01,999] [INFO] go on", b"W1201 10:00:00.999999 4712 a.cc:2] hot"],
    }
    assert [processes for processes, _ in side_by_side(logs)] == [(0, 1), (2,), (0, 1), (2,)]
    assert side_by_side(logs)[0][1] == logs[0][0]


def test_no_line_is_lost_or_doubled_and_each_process_keeps_its_order() -> None:
    chance = random.Random(4)
    for _ in range(50):
        common = [b"c%d" % number for number in range(chance.randrange(60))]
        logs = {}
        for process in range(-1, 5):
            mixed = [line for line in common if chance.random() > 0.1]
            for number in range(chance.randrange(10)):
                mixed.insert(chance.randrange(len(mixed) + 1), b"own %d %d" % (process, number))
            logs[process] = mixed
        told = list(merged(logs))
        for process, lines in logs.items():
            assert [each.line for each in told if process in each.processes] == lines


def test_a_log_is_read_no_further_than_the_look_ahead() -> None:
    read = 0

    def endless() -> itertools.chain[bytes]:
        def lines() -> object:
            nonlocal read
            for number in itertools.count():
                read += 1
                yield b"%d" % number

        return itertools.chain(lines())  # type: ignore[arg-type]

    told = merged({0: endless(), 1: [b"other"]})
    for _ in range(50):
        next(told)
    assert read <= 50 + LOOK_AHEAD


def test_what_came_in_is_held_until_it_is_flushed() -> None:
    window = Window()
    for process, line in ((3, b"a"), (1, b"a"), (1, b"b"), (1, b"a"), (3, b"b")):
        window.take(process, line)
    assert list(window.flush()) == [Alike((1, 3), b"a"), Alike((1, 3), b"b"), Alike((1,), b"a")]
    assert list(window.flush()) == []
