"""Steps' lines run as one script: each in its own shell, each with its own end."""

from __future__ import annotations

import subprocess
from pathlib import Path

from clusterkit.steps.applying import Applied, outcome, script


def run(changes: list[tuple[str, list[str]]]) -> dict[str, str]:
    text = script(changes, "T0KEN")
    assert subprocess.run(["sh", "-n"], input=text.encode(), check=False).returncode == 0
    ended = subprocess.run(["sh", "-s"], input=text.encode(), capture_output=True, check=False, timeout=20)
    return outcome(ended.stdout.decode("utf-8", "replace"), "T0KEN", [name for name, _ in changes])


def test_a_step_that_fails_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    found = run([
        ("one", [f"touch {tmp_path}/one"]),
        ("two", ["echo it broke >&2", "false", f"touch {tmp_path}/never"]),
        ("three", [f"touch {tmp_path}/three"]),
    ])  # fmt: skip
    assert found == {"one": "", "two": "it broke", "three": ""}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "three"]


def test_lines_share_a_shell_and_an_unset_variable_is_an_error() -> None:
    assert run([("a", ["x=1", '[ "$x" = 1 ]']), ("b", ['echo "$x"'])])["a"] == ""
    assert "x" in run([("a", ["x=1"]), ("b", ['echo "$x"'])])["b"]


def test_output_that_looks_like_a_frame_or_is_no_text_does_no_harm() -> None:
    found = run([
        ("a", ["echo 'T0KEN step 1 0 '", "printf '\\377\\376\\n' >&2", "exit 3"]),
        ("b", ["exit 4"]),
    ])  # fmt: skip
    assert found["a"] == "\ufffd\ufffd"
    assert found["b"] == "its commands ended with status 4"


def test_what_never_ran_is_not_taken_for_done() -> None:
    assert outcome("", "T0KEN", ["a"]) == {"a": "its commands ended with status 1"}


def test_a_host_where_nothing_ran_says_the_same_for_every_step() -> None:
    assert Applied({}, "connection lost").words("any") == "connection lost"
    assert Applied({"a": ""}).words("a") == ""
