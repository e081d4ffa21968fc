"""Errors of many hosts: equal ones once, each host's own kept apart."""

from __future__ import annotations

import io

from clusterkit.errors import FleetError, HostError
from clusterkit.report import problems
from clusterkit.report.terminal import Words


def shown(**messages: str) -> list[str]:
    failures = {host: HostError(host, message, f"look at {host}") for host, message in messages.items()}
    stream = io.StringIO()
    problems.show_hosts(Words(stream), FleetError(failures, "exec"))
    return stream.getvalue().splitlines()


def test_one_host_keeps_its_address() -> None:
    assert shown(gpu1="gpu1 (10.0.0.1:22): no route") == ["gpu1 (10.0.0.1:22): no route", "  → look at gpu1"]


def test_a_message_without_its_host_gets_it() -> None:
    assert shown(gpu1="no interpreter") == ["gpu1: no interpreter", "  → look at gpu1"]


def test_equal_messages_of_many_hosts_are_one() -> None:
    lines = shown(
        gpu1="gpu1 (10.0.0.1:22): sudo wants a password",
        gpu2="gpu2 (10.0.0.2:22): sudo wants a password",
        gpu3="gpu3 (10.0.0.3:22): no route",
    )
    assert lines == [
        "gpu[1-2]: sudo wants a password",
        "  → look at HOST",
        "gpu3 (10.0.0.3:22): no route",
        "  → look at gpu3",
    ]


def test_a_short_alias_is_not_taken_out_of_words() -> None:
    assert shown(a="a: cannot read a file at a.b", b="b: cannot read a file at b") == [
        "a: cannot read a file at a.b",
        "  → look at a",
        "b: cannot read a file at b",
        "  → look at b",
    ]
