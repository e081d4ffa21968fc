"""Verdicts as lines: the exceptions by name, equal ones together."""

from __future__ import annotations

from clusterkit.report.checks import exceptions
from clusterkit.steps import Verdict


def test_equal_exceptions_share_a_line_and_what_is_well_has_none() -> None:
    verdicts = [
        Verdict("gpu1", "ports", "failed", message="9000 is taken", hint="end it"),
        Verdict("gpu2", "ports", "failed", message="9000 is taken", hint="end it"),
        Verdict("gpu2", "clock", "ok", message="fine"),
        Verdict("gpu1", "firewall", "changed"),
    ]
    assert exceptions(verdicts) == [
        ("gpu[1-2]: ports failed: 9000 is taken", "red"),
        ("  → end it", None),
        ("gpu1: firewall changed", None),
    ]
