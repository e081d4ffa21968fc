"""Who meets whom: a sample that leaves nobody out, and tournaments in which nobody has two games at once."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from clusterkit.between.pairs import ALL_PAIRS_UP_TO, disjoint, ordered_pairs, rounds


def names(count: int) -> list[str]:
    return [f"gpu{number:03d}" for number in range(count)]


@pytest.mark.parametrize("count", [2, 3, 4, 16, 31, 32])
def test_up_to_32_hosts_every_ordered_pair_is_tried_once(count: int) -> None:
    pairs = ordered_pairs(names(count))
    assert len(pairs) == len(set(pairs)) == count * (count - 1)
    assert all(source != to for source, to in pairs)


def test_beyond_32_every_pair_only_if_asked_for() -> None:
    assert len(ordered_pairs(names(40), every=True)) == 40 * 39
    assert len(ordered_pairs(names(40))) < 40 * 39 / 2


@pytest.mark.parametrize("count", range(ALL_PAIRS_UP_TO + 1, 257))
def test_a_sample_touches_every_host_in_both_directions(count: int) -> None:
    hosts = names(count)
    pairs = ordered_pairs(hosts)
    assert len(pairs) == len(set(pairs)), "nothing is tried twice"
    assert all(source != to for source, to in pairs)
    assert {(to, source) for source, to in pairs} == set(pairs), "each pair in both directions"
    sent, got = Counter(source for source, _ in pairs), Counter(to for _, to in pairs)
    enough = 2 * math.floor(math.log2(count)) - 1
    assert all(sent[host] >= enough and got[host] >= enough for host in hosts)
    master = hosts[0]
    assert sent[master] == got[master] == count - 1, "the master meets everybody"
    assert len(pairs) <= count * (2 * math.log2(count) + 2), "it stays a sample"


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 16, 33])
def test_a_tournament_meets_every_pair_once_and_has_nobody_twice_in_a_round(count: int) -> None:
    hosts = names(count)
    played = rounds(hosts)
    assert len(played) == count - 1 + count % 2
    games = [frozenset(game) for games in played for game in games]
    assert len(games) == len(set(games)) == count * (count - 1) // 2
    for of_round in played:
        busy = [host for game in of_round for host in game]
        assert len(busy) == len(set(busy))


def test_one_host_has_nobody_to_play_with() -> None:
    assert rounds(["gpu01"]) == []
    assert ordered_pairs(["gpu01"]) == ()


def test_repeated_games_are_put_where_both_are_free() -> None:
    pairs = [("a", "b"), ("a", "c"), ("c", "d"), ("b", "a")]
    assert disjoint(pairs) == [[("a", "b"), ("c", "d")], [("a", "c")], [("b", "a")]]
