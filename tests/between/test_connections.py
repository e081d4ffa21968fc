"""What is said about a pair that does not connect: direction, port, DROP or REJECT, and who blocks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterkit.between.blame import Blocked, Needed, nobody_knows
from clusterkit.between.connections import Attempt, judge
from clusterkit.inventory.model import PortRange
from clusterkit.preflight import Finding
from tests.between.peering import peer

NEEDED = Needed(PortRange(30000, 65535), PortRange(32768, 60999))
OPEN = {"outcome": "open", "detail": "", "seconds": 0.0001, "round_trip_us": 50}
SILENT = {"outcome": "silent", "detail": "", "seconds": 2.5}
REFUSED = {"outcome": "refused", "detail": "", "seconds": 0.0002}
PROHIBITED = {"outcome": "error", "detail": "No route to host", "seconds": 0.0002}
PORTS = {"master": 30100, "low": 30000, "high": 65471, "ephemeral": 45000}


def tried(source: int, to: int, *, answered: bool = False, **results: Any) -> list[Attempt]:
    """One attempt for each kind of port; what is not named is open."""
    return [
        Attempt(peer(source), peer(to), kind, port, results.get(kind, OPEN), answered and kind in results)
        for kind, port in PORTS.items()
    ]


def judged(attempts: list[Attempt], blame: Any = nobody_knows) -> list[Finding]:
    return judge(attempts, blame, NEEDED, 2.5)


def test_all_open_is_one_line_that_counts() -> None:
    (found,) = judged(tried(1, 2) + tried(2, 1))
    assert (found.status, found.detail) == ("ok", "2 ordered pairs on 4 ports each")


def test_nothing_tried_says_nothing() -> None:
    assert judged([]) == []


def test_only_the_direction_that_fails_is_named() -> None:
    closed = tried(1, 2, master=SILENT, low=SILENT, high=SILENT, ephemeral=SILENT)
    (found,) = judged([*closed, *tried(2, 1), *tried(1, 3), *tried(3, 1)])
    assert (found.status, found.source, found.to) == ("failed", "gpu01", "gpu02")
    assert found.detail == (
        "port 30100 (master), 30000 (port_range), 65471 (port_range), 45000 (ephemeral): "
        "DROP, no answer within 2.5 s"
    )
    assert found.hint == (
        "look at the firewalls of gpu02 (in) and gpu01 (out); if neither blocks, ask who runs the network "
        "to let TCP 30000-65535 and 32768-60999 through from 10.0.0.1 to 10.0.0.2"
    )


def test_the_ports_that_are_open_are_named_beside_those_that_are_not() -> None:
    (found,) = judged(tried(1, 2, low=REFUSED))
    assert found.detail == (
        "port 30000 (port_range): REJECT, refused although clusterkit listens there; "
        "port 30100 (master), 65471 (port_range), 45000 (ephemeral): open"
    )


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (SILENT, "DROP, no answer within 2.5 s"),
        (REFUSED, "REJECT, refused although clusterkit listens there"),
        (PROHIBITED, "REJECT, refused with an ICMP answer"),
        ({**PROHIBITED, "seconds": 1.1}, "REJECT, refused with an ICMP answer"),
        ({**PROHIBITED, "outcome": "absent"}, "no machine answers for 10.0.0.2 on eth0"),
        ({**SILENT, "outcome": "absent"}, "no machine answers for 10.0.0.2 on eth0"),
        ({**OPEN, "outcome": "error", "detail": "Network is unreachable"}, "Network is unreachable on gpu01"),
        ({**OPEN, "outcome": "stalled"}, "it connects, then nothing comes back"),
        (
            {**OPEN, "outcome": "stalled", "detail": "Connection reset by peer"},
            "it connects, then nothing comes back (Connection reset by peer)",
        ),
        (
            {**OPEN, "outcome": "stranger", "detail": "gpu07"},
            "gpu07, another host of the inventory, answers at 10.0.0.2: is the address used twice?",
        ),
        (
            {**OPEN, "outcome": "stranger"},
            "something else answers at 10.0.0.2: is the address used twice?",
        ),
    ],
)
def test_every_outcome_has_its_words(result: Mapping[str, Any], said: str) -> None:
    (found,) = judged(tried(1, 2, master=result))
    assert found.detail.startswith(f"port 30100 (master): {said}; port 30000")


def test_a_request_that_arrives_was_dropped_on_the_way_back() -> None:
    (found,) = judged(tried(1, 2, answered=True, master=SILENT))
    assert "DROP on the way back: the request arrives, no answer within 2.5 s" in found.detail


def test_silence_beside_refusals_may_be_one_refusal_too_many() -> None:
    (found,) = judged(tried(1, 2, master=PROHIBITED, low=SILENT))
    assert "port 30000 (port_range): DROP, or one refusal too many, no answer within 2.5 s" in found.detail


def test_the_host_and_the_rule_that_block_are_named() -> None:
    asked = []

    def blame(blocked: Blocked) -> str | None:
        asked.append(blocked)
        return "gpu02: nft chain inet filter input, policy drop"

    (found,) = judged(tried(1, 2, master=SILENT, low=SILENT), blame)
    assert found.detail.endswith("; blocked by gpu02: nft chain inet filter input, policy drop")
    assert found.hint == "what to do about that rule stands with the check `firewall` of gpu02"
    assert asked[0] == Blocked("gpu01", "10.0.0.1", "gpu02", "10.0.0.2", 30100)
    (found,) = judged(tried(1, 2, master=SILENT), lambda blocked: "gpu01: nft ip daddr 10.0.0.2 drop")
    assert found.hint == "what to do about that rule stands with the check `firewall out` of gpu01"


def test_no_rule_of_either_host_means_something_between_them() -> None:
    (found,) = judged(tried(1, 2, master=SILENT), lambda blocked: "")
    assert "so something between them does (security group, switch ACL)" in found.detail
    assert found.hint == (
        "ask who runs the network to let TCP 30000-65535 and 32768-60999 through from 10.0.0.1 to 10.0.0.2"
    )


def test_a_firewall_is_not_blamed_for_an_address_used_twice() -> None:
    (found,) = judged(tried(1, 2, master={**OPEN, "outcome": "stranger"}), lambda blocked: "")
    assert "security group" not in found.detail
    assert "address of its own" in found.hint


def test_a_dropped_answer_may_be_a_hosts_own_doing() -> None:
    """Rules are followed for requests: what drops the answer may be among them all the same."""
    (found,) = judged(tried(1, 2, answered=True, master=SILENT), lambda blocked: "")
    assert "something between them" not in found.detail
    assert found.hint.startswith("look at the firewalls of gpu02 (in) and gpu01 (out)")
