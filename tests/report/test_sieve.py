"""Which lines `logs` shows: patterns, levels as they are really written, and marks."""

from __future__ import annotations

import pytest

from clusterkit.errors import InputError
from clusterkit.report import sieve
from clusterkit.report.sieve import LEVELS, Choice, Sieve

LOG = [
    b"step 1 loss 0.9",
    b"2026-12-01 10:00:00,123 - WARNING - the learning rate is high",
    b"step 2 loss 0.8",
    b"2026-12-01 10:00:01,000 - ERROR - a worker failed",
    b"Traceback (most recent call last):",
    b'  File "train.py", line 3, in <module>',
    b"ValueError: bad data",
    b"2026-12-01 10:00:02,000 - INFO - going on",
    b"step 3 loss 0.7",
]


def shown(lines: list[bytes] = LOG, **given: object) -> list[bytes]:
    choice = Choice(
        grep=sieve.patterns("--grep", given.get("grep", ())),  # type: ignore[arg-type]
        exclude=sieve.patterns("--exclude", given.get("exclude", ())),  # type: ignore[arg-type]
        level=sieve.level(given.get("level")),  # type: ignore[arg-type]
    )
    sifted = Sieve(choice)
    return [line for line in lines if sifted.lets_through(0, line)]


def test_any_of_the_patterns_and_none_of_the_excluded() -> None:
    assert shown() == LOG
    assert shown(grep=["loss", "worker"]) == [LOG[0], LOG[2], LOG[3], LOG[8]]
    assert shown(grep=["loss"], exclude=["step 2", "0\\.7$"]) == [LOG[0]]
    assert shown(exclude=["."]) == []


def test_a_pattern_does_not_see_colours_and_is_utf_8() -> None:
    lines = ["\x1b[31mErr\x1b[0mor: zu groß".encode(), b"\xff\xfe Error"]
    assert shown(lines, grep=["^Error: zu gro\u00df$"]) == lines[:1]
    assert shown(lines, grep=["Error"]) == lines


def test_a_line_without_a_level_belongs_to_the_one_before_it() -> None:
    assert shown(level="error") == LOG[3:7]
    assert shown(level="warning") == [LOG[1], LOG[2], *LOG[3:7]]
    assert shown(level="INFO") == LOG
    assert shown(level="critical") == []


def test_levels_of_processes_are_their_own() -> None:
    sifted = Sieve(Choice(level=3))
    assert sifted.lets_through(0, b"ERROR: lost")
    assert not sifted.lets_through(1, b"  more")
    assert sifted.lets_through(0, b"  more")


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"[2026-12-01 10:00:00,000] [    INFO] fleet.py:1 - ready", "info"),
        (b"[2026-12-01 10:00:00,000] [ WARNING] fleet.py:1 - slow", "warning"),
        (b"LAUNCH WARNING args master is ignored", "warning"),
        (b"W1201 10:00:00.123456  4711 gpu_resources.cc:119] Please NOTE", "warning"),
        (b"I1201 10:00:00.123456 4711 tcp_utils.cc:181] The server starts", "info"),
        (b"E20261201 10:00:00.123456 4711 a.cc:1] no", "error"),
        (b"F1201 10:00:00.123456 4711 a.cc:1] no", "critical"),
        (b"C++ Traceback (most recent call last):", "error"),
        (b"RuntimeError: (PreconditionNotMet) no", "error"),
        (b"paddle.base.core.PaddleException: no", "error"),
        (b"loss 0.5, no ERRORS so far", None),
        (b"Information about errors", None),
        (b"x" * 300 + b" ERROR", None),
    ],
)
def test_levels_as_they_are_written(line: bytes, level: str | None) -> None:
    found = sieve.level_of(line)
    assert (None if found is None else LEVELS[found]) == level


def test_what_is_no_pattern_or_level_is_said() -> None:
    with pytest.raises(InputError, match=r"--grep loss\(: not a regular expression: .* at character 5"):
        sieve.patterns("--grep", ["loss("])
    with pytest.raises(InputError, match="--level loud: no such level") as caught:
        sieve.level("loud")
    assert "debug, info, warning, error, critical" in caught.value.hint
    assert (sieve.level("Warn"), sieve.level("fatal"), sieve.level(None)) == (2, 4, None)


def test_marks_keep_the_colours_of_a_line() -> None:
    found = sieve.patterns("--highlight", ["loss", "x*"])
    assert sieve.highlighted(b"\x1b[31mloss 1\x1b[0m", found) == b"\x1b[31m\x1b[7mloss\x1b[27m 1\x1b[0m"


def test_a_long_line_costs_no_more_than_its_length() -> None:
    assert shown([b"a" * 2_000_000], level="error", grep=["b"]) == []
