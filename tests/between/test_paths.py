"""Whether a path carries its MTU: datagrams tell, else a TCP transfer, else it is not known (and not bad)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterkit.between.paths import Path, judge
from tests.between.peering import peer

CARRIED = {"small": True, "large": True, "error": ""}
LOST = {"small": True, "large": False, "error": ""}
CLOSED = {"small": False, "large": False, "error": ""}
FULL = {"outcome": "open", "mss": 1448, "path_mtu": 1500, "resent": 0}
STALLED = {"outcome": "stalled", "mss": 1448, "path_mtu": 1500, "resent": 3}


def path(
    source: int, to: int, datagrams: Mapping[str, Any], transfer: Mapping[str, Any] | None = None
) -> Path:
    return Path(peer(source), peer(to), datagrams, transfer or {})


@pytest.mark.parametrize(
    ("datagrams", "transfer", "status", "said"),
    [
        (CARRIED, {}, "ok", "every path carries 1500 bytes"),
        (CLOSED, FULL, "ok", "every path carries 1500 bytes"),
        (LOST, STALLED, "failed", "packets of 1500 bytes are lost on the way, small ones pass"),
        (CLOSED, STALLED, "failed", "a TCP transfer stalls after it has connected"),
        (LOST, FULL, "warning", "UDP packets of 1500 bytes are lost, though TCP passes"),
        (LOST, {**FULL, "mss": 1300}, "warning", "TCP passes only in smaller segments"),
        (LOST, {**FULL, "path_mtu": 1400}, "warning", "the path carries 1400 bytes"),
        (CLOSED, {**FULL, "path_mtu": 1400}, "warning", "the path carries 1400 bytes"),
        (CLOSED, {**FULL, "mss": 1300}, "warning", "not known whether the path carries 1500 bytes"),
        (CLOSED, {**STALLED, "resent": 0}, "warning", "not known whether"),
        (CLOSED, {"outcome": "refused"}, "warning", "not known whether"),
        (CLOSED, {}, "warning", "not known whether"),
    ],
)
def test_what_was_seen_decides(
    datagrams: Mapping[str, Any], transfer: Mapping[str, Any], status: str, said: str
) -> None:
    (found,) = judge([path(1, 2, datagrams, transfer)])
    assert found.status == status
    assert said in found.detail


def test_the_smaller_of_two_interfaces_is_what_the_path_must_carry() -> None:
    assert Path(peer(1, mtu=9000), peer(2, mtu=1500)).mtu == 1500


def test_one_bad_direction_is_that_direction() -> None:
    ways = [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)]
    (found,) = judge([path(a, b, *((LOST, STALLED) if (a, b) == (1, 2) else (CARRIED,))) for a, b in ways])
    assert (found.source, found.to) == ("gpu01", "gpu02")


def test_a_host_whose_every_path_is_bad_is_one_finding() -> None:
    ways = [(a, b) for a in (1, 2, 3, 4) for b in (1, 2, 3, 4) if a != b]
    (found,) = judge([path(a, b, *((LOST, STALLED) if 3 in (a, b) else (CARRIED,))) for a, b in ways])
    assert (found.source, found.to) == ("gpu03", "")
    assert found.detail.endswith("to and from all others")


def test_a_switch_that_carries_less_everywhere_is_one_finding() -> None:
    ways = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b]
    (found,) = judge([path(a, b, LOST, STALLED) for a, b in ways])
    assert (found.source, found.to) == ("", "")
    assert found.detail.endswith("between all hosts")


def test_two_hosts_are_named_both() -> None:
    found = judge([path(1, 2, LOST, STALLED), path(2, 1, LOST, STALLED)])
    assert [(each.source, each.to) for each in found] == [("gpu01", "gpu02"), ("gpu02", "gpu01")]


def test_nothing_tried_says_nothing() -> None:
    assert judge([]) == []
