"""Ranks as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.errors import InputError, NotFound
from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.runs.selection import choose, fold_ranks, parse_ranks


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("3", (3,)),
        ("0,2-5", (0, 2, 3, 4, 5)),
        ("all", tuple(range(8))),
        (" 7 , 1 ", (1, 7)),
        ("2-2", (2,)),
        ("5,5,4-6", (4, 5, 6)),
    ],
)
def test_ranks_are_read(text: str, ranks: tuple[int, ...]) -> None:
    assert parse_ranks(text, 8) == ranks


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1,,2", "1..3", "٣x"])
def test_other_text_is_refused_with_the_right_way_to_write_it(text: str) -> None:
    with pytest.raises(InputError, match="does not name ranks") as caught:
        parse_ranks(text, 8)
    assert "0,2-5" in caught.value.hint


def test_a_range_that_runs_backwards_is_turned_round_in_the_hint() -> None:
    with pytest.raises(InputError, match="5-2") as caught:
        parse_ranks("5-2", 8)
    assert "`2-5`" in caught.value.hint


def test_a_rank_too_high_says_which_there_are() -> None:
    with pytest.raises(NotFound, match="no rank 8: the run has 8 ranks, 0 to 7"):
        parse_ranks("8", 8)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_folding_and_reading_are_inverse(ranks: set[int]) -> None:
    assert parse_ranks(fold_ranks(sorted(ranks)), 301) == tuple(sorted(ranks))


def test_ranks_fold_to_ranges() -> None:
    assert fold_ranks([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert fold_ranks([]) == ""


def record(*counts: int) -> RunRecord:
    nodes = []
    first = 0
    for number, count in enumerate(counts):
        ranks = tuple(range(first, first + count))
        first += count
        nodes.append(
            NodeRecord(f"gpu{number}", number, f"10.0.0.{number}", ranks, "python3", "/r", "/w", "/l", {})
        )
    return RunRecord("id", "inventory.ini", "train.py", (), 0.0, tuple(nodes))


def test_rank_and_node_select_together() -> None:
    assert choose(record(3, 1, 2), "2-4", ["gpu0", "gpu2"]) == (2, 4)


def test_rank_three_is_on_the_second_node_when_nodes_differ() -> None:
    assert record(3, 1, 2).node_of(3).host == "gpu1"
    assert record(3, 1, 2).node_of(3).log_of(3) == "/l/workerlog.0"
    assert record(3, 1, 2).node_of(5).log_of(5) == "/l/workerlog.1"


def test_an_unknown_node_lists_the_nodes() -> None:
    with pytest.raises(NotFound, match="no node `gpu9`") as caught:
        choose(record(1, 1), None, ["gpu9"])
    assert "gpu0, gpu1" in caught.value.hint
