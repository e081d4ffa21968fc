"""Ranges and ports in host lines."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterkit.inventory.hostnames import BadName, expand

RELAXED = settings(deadline=None)  # the machine may be busy

NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=4)


@RELAXED
@given(head=NAMES, first=st.integers(0, 500), count=st.integers(1, 50), step=st.integers(1, 7))
def test_a_numeric_range_has_both_ends_and_keeps_its_step(
    head: str, first: int, count: int, step: int
) -> None:
    last = first + (count - 1) * step
    names, port = expand(f"{head}[{first}:{last}:{step}].local")
    assert names == [f"{head}{first + index * step}.local" for index in range(count)]
    assert port is None


@RELAXED
@given(first=st.integers(0, 99), count=st.integers(1, 30), width=st.integers(3, 6))
def test_leading_zeros_are_kept(first: int, count: int, width: int) -> None:
    names, _ = expand(f"n[{first:0{width}}:{first + count - 1:0{width}}]")
    assert names == [f"n{first + index:0{width}}" for index in range(count)]
    assert {len(name) for name in names} == {width + 1}


@RELAXED
@given(ends=st.tuples(st.sampled_from(string.ascii_letters), st.sampled_from(string.ascii_letters)))
def test_letters_run_from_a_to_z_and_then_from_capital_a(ends: tuple[str, str]) -> None:
    first, last = sorted(ends, key=string.ascii_letters.index)
    names, _ = expand(f"[{first}:{last}]x")
    assert "".join(name[0] for name in names) in string.ascii_letters
    assert (names[0], names[-1]) == (f"{first}x", f"{last}x")


@RELAXED
@given(one=st.integers(1, 5), two=st.integers(1, 5), port=st.integers(1, 65535))
def test_the_last_of_several_ranges_runs_fastest(one: int, two: int, port: int) -> None:
    names, found = expand(f"r[1:{one}]n[1:{two}]:{port}")
    assert names == [f"r{a}n{b}" for a in range(1, one + 1) for b in range(1, two + 1)]
    assert found == port


@RELAXED
@given(word=st.text("ab1:[]./-,", max_size=12))
def test_any_word_gives_names_or_an_explanation(word: str) -> None:
    try:
        names, port = expand(word)
    except BadName:
        return
    assert names
    assert all(name and not set("[]") & set(name) for name in names)
    assert port is None or 1 <= port <= 65535


@pytest.mark.parametrize(
    ("word", "names", "port"),
    [
        ("2001:db8::1", ["2001:db8::1"], None),
        ("[2001:db8::1]", ["2001:db8::1"], None),
        ("[2001:db8::1]:2222", ["2001:db8::1"], 2222),
        ("fe80::1%eth0", ["fe80::1%eth0"], None),
        ("[fe80::1%eth0]:22", ["fe80::1%eth0"], 22),
        ("::1", ["::1"], None),
        ("[gpu01]:22", ["gpu01"], 22),
    ],
)
def test_ipv6_and_brackets(word: str, names: list[str], port: int | None) -> None:
    assert expand(word) == (names, port)
