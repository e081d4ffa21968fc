"""Captured output → value, one file a case: to add a distribution or a driver, add a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.facts import ProbeFailed, interpret
from tests.facts.recorded import CASES, PROBES, load, output, plain

FILES = sorted(CASES.glob("*/*.json"))


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}/{file.stem}" for file in FILES])
def test_output_becomes_value(file: Path) -> None:
    name, case = file.parent.name, load(file.parent.name, file.stem)
    value = interpret("gpu01", {name: output(name, file.stem)}, [PROBES[name]])[name]
    if "failure" in case:
        assert isinstance(value, ProbeFailed)
        assert {"status": value.status, "message": value.message} == case["failure"]
        return
    assert not isinstance(value, ProbeFailed), value
    # A value that is too large to be read may be described by its properties alone.
    assert "value" in case or case["properties"]
    assert "value" not in case or plain(value) == case["value"]
    for attribute, expected in case.get("properties", {}).items():
        assert plain(getattr(value, attribute)) == expected, attribute


def test_every_probe_has_cases() -> None:
    assert {file.parent.name for file in FILES} == set(PROBES)
