"""A slow host is told from a slow pair, in every size of fleet."""

from __future__ import annotations

import random

import pytest

from clusterkit.between import matrix, roundtrips
from clusterkit.between.matrix import Matrix, better, gbit, judge, worth_repeating
from clusterkit.between.pairs import Pair

SPEED = 1.2e9


def fleet(count: int, slow: dict[Pair, float] | None = None, seed: int = 1) -> Matrix:
    """Rates around SPEED, as noisy as a busy machine's; `slow` replaces those of single pairs."""
    noise = random.Random(seed)
    hosts = tuple(f"n{number}" for number in range(count))
    rates = {(a, b): SPEED * noise.uniform(0.7, 1.1) for a in hosts for b in hosts if a != b}
    return Matrix(hosts, {**rates, **(slow or {})})


def test_hosts_that_share_few_processors_differ_and_are_not_slow() -> None:
    noise = random.Random(3)
    measured = fleet(16)
    busy = {pair: SPEED * noise.uniform(0.55, 1.6) for pair in measured.rates}
    assert named(Matrix(measured.hosts, busy)) == []


def outward(host: str, count: int) -> dict[Pair, float]:
    return {(host, f"n{number}"): SPEED / 50 for number in range(count) if f"n{number}" != host}


def inward(host: str, count: int) -> dict[Pair, float]:
    return {(f"n{number}", host): SPEED / 50 for number in range(count) if f"n{number}" != host}


def named(measured: Matrix) -> list[tuple[str, str]]:
    return [(found.source, found.to) for found in judge(measured, {}) if found.status == "warning"]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16, 64])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_named_where_nobody_is_slow(count: int, seed: int) -> None:
    (found,) = judge(fleet(count, seed=seed), {})
    assert found.status == "ok"
    assert "typical" in found.detail


@pytest.mark.parametrize("count", [3, 4, 5, 16, 64])
def test_a_host_that_sends_slowly(count: int) -> None:
    assert named(fleet(count, outward("n1", count))) == [("n1", "")]


@pytest.mark.parametrize("count", [3, 4, 5, 16, 64])
def test_a_host_that_gets_slowly(count: int) -> None:
    assert named(fleet(count, inward("n2", count))) == [("", "n2")]


@pytest.mark.parametrize("count", [3, 4, 5, 16])
def test_a_host_that_is_slow_both_ways(count: int) -> None:
    slow = {**outward("n0", count), **inward("n0", count)}
    assert named(fleet(count, slow)) == [("n0", ""), ("", "n0")]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16, 64])
def test_one_slow_pair_is_that_pair(count: int) -> None:
    assert named(fleet(count, {("n0", "n1"): SPEED / 20})) == [("n0", "n1")]


def test_a_slow_host_and_a_slow_pair_elsewhere() -> None:
    assert named(fleet(8, {**outward("n1", 8), ("n4", "n5"): SPEED / 20})) == [("n1", ""), ("n4", "n5")]


def test_a_pair_without_a_result_is_a_failure() -> None:
    (found,) = judge(Matrix(("a", "b"), {}, {("a", "b"): "Connection refused"}), {})
    assert (found.status, found.source, found.to) == ("failed", "a", "b")
    assert found.detail == "no measurement: Connection refused"


def test_the_better_of_two_results_is_kept() -> None:
    measured = better(fleet(3, {("n0", "n1"): 1.0}), {("n0", "n1"): SPEED, ("n1", "n0"): 1.0})
    assert measured.rates["n0", "n1"] == SPEED
    assert measured.rates["n1", "n0"] > SPEED / 2


def test_only_slow_pairs_are_repeated_and_few_of_each_host() -> None:
    again = worth_repeating(fleet(64, outward("n1", 64)))
    assert 1 <= len(again) <= 3
    assert list(worth_repeating(fleet(4))) == []


def test_links_that_are_known_are_held_against_their_speed() -> None:
    hosts = ("a", "b")
    slow = Matrix(hosts, {("a", "b"): 6e7, ("b", "a"): 6e7})
    (found,) = judge(slow, {"a": 1000, "b": 1000})
    assert found.status == "warning"
    assert "480 Mbit/s typical" in found.detail
    assert "on links of 1 Gbit/s" in found.detail
    (found,) = judge(slow, {"a": 100_000, "b": 100_000})
    assert found.status == "ok", "one stream cannot fill such a link"
    (found,) = judge(slow, {"a": 1000, "b": None})
    assert found.status == "ok"


def test_the_matrix_can_be_drawn() -> None:
    rows = Matrix(("a", "b"), {("a", "b"): 5.0}).as_rows()
    assert rows == [[None, 5.0], [None, None]]


@pytest.mark.parametrize(
    ("rate", "text"),
    [(1.25e9, "10 Gbit/s"), (1.25e8, "1 Gbit/s"), (1e6, "8 Mbit/s"), (1.2495e8, "1000 Mbit/s")],
)
def test_rates_in_bits(rate: float, text: str) -> None:
    assert gbit(rate) == text


# --- round trips -----------------------------------------------------------------------------------


def test_usual_round_trips_are_one_line() -> None:
    (found,) = roundtrips.judge({("a", "b"): 5e-5, ("b", "a"): 1e-4})
    assert (found.status, found.detail) == ("ok", "0.05 ms typical, 0.1 ms at most (b to a)")


def test_a_pair_that_is_far_apart_is_named() -> None:
    trips = {("a", "b"): 1e-4, ("b", "a"): 1e-4, ("a", "c"): 1e-4, ("c", "a"): 0.03}
    (found,) = roundtrips.judge(trips)
    assert (found.status, found.source, found.to) == ("warning", "c", "a")
    assert found.detail == "30 ms, 0.1 ms is typical"


@pytest.mark.parametrize("count", [3, 4, 5, 9])
def test_a_host_that_is_far_from_all_is_named_once(count: int) -> None:
    hosts = [f"n{number}" for number in range(count)]
    pairs = [(one, other) for one in hosts for other in hosts if one != other]
    trips = {pair: 0.03 if "n1" in pair else 1e-4 for pair in pairs}
    (found,) = roundtrips.judge(trips)
    assert (found.status, found.source, found.to) == ("warning", "n1", "")
    assert found.detail == "30 ms and more to and from all others, 0.1 ms is typical"


def test_a_far_pair_beside_a_far_host_keeps_its_line() -> None:
    hosts = ["a", "b", "c", "d"]
    pairs = [(one, other) for one in hosts for other in hosts if one != other]
    trips = {pair: 0.03 if "b" in pair else 1e-4 for pair in pairs}
    found = roundtrips.judge({**trips, ("a", "c"): 0.02})
    assert [(each.source, each.to) for each in found] == [("b", ""), ("a", "c")]


def test_two_rooms_are_named_by_the_pairs_between_them() -> None:
    hosts = ["a1", "a2", "b1", "b2"]
    pairs = [(one, other) for one in hosts for other in hosts if one != other]
    found = roundtrips.judge({pair: 1e-4 if pair[0][0] == pair[1][0] else 0.03 for pair in pairs})
    assert {(each.source, each.to) for each in found} == {pair for pair in pairs if pair[0][0] != pair[1][0]}


def test_a_whole_cluster_that_is_far_apart_is_said_once() -> None:
    (found,) = roundtrips.judge({("a", "b"): 0.02, ("b", "a"): 0.021})
    assert (found.status, found.source) == ("warning", "")


def test_a_long_round_trip_is_no_power_of_ten() -> None:
    (found,) = roundtrips.judge({("a", "b"): 0.1004, ("b", "a"): 0.11})
    assert found.detail == "100 ms is typical, which is long within one cluster"


def test_no_round_trips_no_words() -> None:
    assert roundtrips.judge({}) == []


def test_suspects_are_below_half_of_what_is_typical() -> None:
    assert matrix.SLOW == 0.5
    assert fleet(4, {("n0", "n1"): SPEED * 0.3}).suspects == [("n0", "n1")]
