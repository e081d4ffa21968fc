"""The fan-out on its own: order, bounds, who is still awaited."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from clusterkit.errors import HostError, Interrupted, Unreachable
from clusterkit.remote import fan_out


def hosts(count: int) -> dict[str, int]:
    return {f"gpu{n:02}": n for n in range(count)}


def test_results_are_in_the_order_of_the_inventory() -> None:
    def work(number: int) -> int:
        time.sleep(0.02 * (5 - number))
        if number in (1, 3):
            raise Unreachable(f"gpu{number:02}", "tcp", "refused")
        return number * 10

    done: list[str] = []
    outcome = fan_out(hosts(5), work, on_done=done.append)
    assert list(outcome.good.items()) == [("gpu00", 0), ("gpu02", 20), ("gpu04", 40)]
    assert list(outcome.bad) == ["gpu01", "gpu03"]
    assert sorted(done) == list(hosts(5))


def test_no_more_than_forks_at_a_time() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def work(_: int) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1

    fan_out(hosts(20), work, forks=4)
    assert most[0] == 4


def test_no_hosts() -> None:
    outcome = fan_out(dict[str, int](), lambda number: number)
    assert (outcome.good, outcome.bad) == ({}, {})


def test_a_bug_is_raised_after_the_others_have_ended() -> None:
    ended: list[int] = []

    def work(number: int) -> int:
        if number == 0:
            raise ZeroDivisionError("a bug")
        time.sleep(0.1)
        ended.append(number)
        return number

    with pytest.raises(ZeroDivisionError, match="a bug"):
        fan_out(hosts(4), work)
    assert sorted(ended) == [1, 2, 3]


def test_none_is_a_result() -> None:
    assert fan_out(hosts(2), lambda _: None).good == {"gpu00": None, "gpu01": None}


def test_cancel_names_the_unfinished_and_waits_for_nobody() -> None:
    cancel, stuck = threading.Event(), threading.Event()
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number % 2:
            stuck.wait(30)
        return number

    threading.Timer(0.3, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(Interrupted) as caught:
        fan_out(hosts(8), work, forks=3, cancel=cancel)
    assert time.monotonic() - started < 20
    unfinished = caught.value.unfinished
    assert unfinished[:2] == ("gpu01", "gpu03")
    assert "gpu00" not in unfinished
    assert "gpu07" in unfinished
    assert caught.value.exit_code == 130
    stuck.set()
    time.sleep(0.2)
    assert 7 not in begun  # what had not begun does not begin later


def test_ctrl_c_names_the_unfinished() -> None:
    stuck = threading.Event()
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(Interrupted) as caught:
        fan_out(hosts(3), lambda number: stuck.wait(30) if number == 1 else number)
    assert caught.value.unfinished == ("gpu01",)
    assert caught.value.signum == signal.SIGINT
    stuck.set()


def test_a_host_error_of_any_kind_is_an_outcome() -> None:
    def work(number: int) -> int:
        raise HostError("gpu00", "no")

    assert str(fan_out(hosts(1), work).bad["gpu00"]) == "no"
