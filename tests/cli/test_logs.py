"""`clusterkit logs` of a run that is over and gathered: nothing is asked of a host."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.runs import times
from clusterkit.runs.record import RunStore
from tests.cli.test_command_line import Ended, run
from tests.test_status import RECORD

LOGS = {
    rank: b"started\n2026-12-01 10:00:0%d,000 - WARNING - slow\n  of rank\nloss 0.%d\n\xff\nended\n"
    % (rank, rank)
    for rank in range(6)
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project, and a home in which the run is recorded."""
    store = RunStore(tmp_path / "home" / ".local" / "state" / "clusterkit" / "runs")
    ranks = [
        {"rank": rank, "bytes": len(text), "exit_code": 0, "signal": None} for rank, text in LOGS.items()
    ]
    record = replace(RECORD, status={"state": "succeeded", "ranks": ranks, "incomplete": []})
    store.save(record)
    for rank, text in LOGS.items():
        path = store.log(record.run_id, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def logs(folder: Path, *options: str) -> Ended:
    ended = run(folder, "logs", "--run", RECORD.run_id, *options)
    assert ended.code == 0, ended.err
    return ended


def test_one_rank_and_what_is_chosen_of_it(folder: Path) -> None:
    assert (
        logs(folder, "--rank", "3", "--exclude", "WARN|rank", "--tail", "4").out
        == "loss 0.3\n\ufffd\nended\n"
    )
    assert logs(folder, "--rank", "3", "--grep", "^loss", "--grep", "^end").out == "loss 0.3\nended\n"
    assert logs(folder, "--rank", "3", "--level", "warning").out.startswith("2026-12-01 10:00:03,000 - W")
    assert logs(folder, "--rank", "3", "--highlight", "loss").out.count("loss 0.3\n") == 1, (
        "no terminal, no mark"
    )


def test_several_ranks_with_their_prefix_or_folded(folder: Path) -> None:
    assert logs(folder, "--rank", "0-1", "--grep", "loss").out == "[0 gpu0] loss 0.0\n[1 gpu0] loss 0.1\n"
    assert logs(folder, "--fold", "--level", "info", "--exclude", "^loss").out.splitlines() == [
        "[0-5 gpu[0-2]] started",
        "[0-5 gpu[0-2]] 2026-12-01 10:00:00,000 - WARNING - slow",
        "[0-5 gpu[0-2]]   of rank",
        "[0-5 gpu[0-2]] \ufffd",
        "[0-5 gpu[0-2]] ended",
    ]
    assert (
        logs(folder, "--fold", "--rank", "1,4", "--grep", "loss").out
        == "[1 gpu0] loss 0.1\n[4 gpu2] loss 0.4\n"
    )
    assert logs(folder, "--fold", "--rank", "1", "--grep", "loss").out == "loss 0.1\n"


def test_a_program_gets_the_chosen_lines_too(folder: Path) -> None:
    lines = [json.loads(line) for line in logs(folder, "--json", "--grep", "loss").out.splitlines()]
    assert [(each["rank"], each["line"]) for each in lines] == [(rank, f"loss 0.{rank}") for rank in range(6)]


def test_times_of_lines_and_only_those_since_then(folder: Path) -> None:
    """Known to about a second; not known of what a run of an older clusterkit wrote."""
    store = RunStore(folder.parent / "home" / ".local" / "state" / "clusterkit" / "runs")
    text = LOGS[3]
    cut = text.index(b"loss")
    times.keep(store.log(RECORD.run_id, 3), [(cut, 1764579600.25), (len(text), 1764579660.5)])
    shown = logs(folder, "--rank", "3", "--timestamps", "--grep", "start|loss").out
    assert shown == "2025-12-01T09:00:00.2Z started\n2025-12-01T09:01:00.5Z loss 0.3\n"
    late = ("--since", "2025-12-01T09:00:30Z")
    assert logs(folder, "--rank", "3", *late, "--grep", "start|loss").out == "loss 0.3\n"
    assert logs(folder, "--rank", "3", "--since", "1h").out == ""
    both = logs(folder, "--rank", "2-3", *late, "--timestamps", "--grep", "loss").out
    assert both == f"[2 gpu1] {' ' * 22} loss 0.2\n[3 gpu1] 2025-12-01T09:01:00.5Z loss 0.3\n"
    folded = logs(folder, "--rank", "2-3", "--fold", "--timestamps", "--grep", "ended").out
    assert folded.splitlines() == [
        "[2 gpu1]                        ended",
        "[3 gpu1] 2025-12-01T09:01:00.5Z ended",
    ]
    (line,) = logs(folder, "--rank", "3", "--json", "--grep", "loss").out.splitlines()
    assert json.loads(line)["written_at"] == "2025-12-01T09:01:00.500000+00:00"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--grep", "("), "--grep (: not a regular expression"),
        (("--level", "loud"), "--level loud: no such level"),
        (("--output", "logs", "--grep", "a"), "--output writes whole logs"),
        (("--since", "yesterday"), "--since yesterday: not a time"),
        (("--output", "logs", "--since", "1h"), "--output writes whole logs"),
        (("--output", "logs", "--fold"), "--fold and --output do not go together"),
        (("--json", "--fold"), "--fold and --json do not go together"),
    ],
)
def test_what_does_not_go_together(folder: Path, options: tuple[str, ...], words: str) -> None:
    ended = run(folder, "logs", *options)
    assert (ended.code, ended.out) == (2, "") or "--json" in options
    assert words in ended.err + ended.out
    assert not (folder / "logs").exists()
