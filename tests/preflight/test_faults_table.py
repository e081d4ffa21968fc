"""docs/faults.md against the tests that plant the faults, and the checks that name them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from clusterkit.between import connections, matrix, paths, roundtrips, token, writes
from clusterkit.between.ballots import MTU
from clusterkit.steps import ALL
from tests.preflight import host_faults, test_host_and_gpu, test_storage_faults
from tests.preflight.faults import Fault

HERE = Path(__file__).parent
TEXT = (HERE.parent.parent / "docs" / "faults.md").read_text()
CASES = HERE.parent / "cases" / "steps"
CHECKS = {step.name for step in ALL}
FINDINGS = {connections.NAME, matrix.NAME, paths.NAME, roundtrips.NAME, MTU.fact, "proof"}
ON_STORAGE = {token.NAME, writes.NAME}


def tables() -> dict[str, list[tuple[str, ...]]]:
    """The rows below each heading, of all its tables, without their head."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for part in TEXT.split("\n## ")[1:]:
        heading, _, body = part.partition("\n")
        rows = [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in _lines(body)]
        found[heading] = [row for row in rows if row[0] != "fault" and not row[0].startswith("---")]
    return found


def _lines(body: str) -> list[str]:
    return [line for line in body.splitlines() if line.startswith("|")]


def names_of_tests(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("heading", "faults"),
    [
        ("GPUs", test_host_and_gpu.FAULTS),
        ("Hosts", host_faults.FAULTS),
        ("Storage", test_storage_faults.FAULTS),
    ],
)
def test_a_table_has_the_faults_that_are_planted(heading: str, faults: tuple[Fault, ...]) -> None:
    rows = tables()[heading]
    planted = [(fault.name, fault.check, fault.status) for fault in faults]
    firewalls = [row for row in rows if row[1].startswith("firewall")]
    assert [row for row in rows if row not in firewalls] == planted
    assert len(set(planted)) == len(planted)


@pytest.mark.parametrize(
    ("heading", "file"),
    [
        ("Containers", "test_container.py"),
        ("Between the hosts", "test_between.py"),
        ("Storage servers", "test_storage.py"),
    ],
)
def test_a_row_names_its_test(heading: str, file: str) -> None:
    rows = tables()[heading]
    assert rows
    assert {row[3].strip("`") for row in rows} <= names_of_tests(file)


def test_files_and_tests_in_the_text_are_there() -> None:
    for path in set(re.findall(r"`(tests/[\w/]+\.py)`", TEXT)):
        assert (HERE.parent.parent / path).is_file(), path
    assert "test_a_firewall_is_named_on_its_host" in names_of_tests("test_host_faults.py")
    assert "test_a_limit_is_what_the_kernel_refuses_to_exceed" in names_of_tests("test_host_faults.py")
    assert "test_what_is_live_only_says_so" in names_of_tests("test_firewall.py")


def test_every_check_exists() -> None:
    for heading, rows in tables().items():
        known = {"Between the hosts": FINDINGS, "Storage servers": CHECKS | ON_STORAGE}.get(heading, CHECKS)
        for row in rows:
            assert row[1].partition(" (")[0] in known, row


def test_every_check_has_a_fault_that_it_names() -> None:
    named = {row[1].partition(" (")[0] for rows in tables().values() for row in rows}
    assert named >= CHECKS | FINDINGS | ON_STORAGE


def test_what_is_only_recorded_has_its_case() -> None:
    rows = tables()["Shown by recorded facts"]
    assert rows
    for _, check, status, case in rows:
        file = CASES / f"{case.strip('`')}.json"
        assert file.parent.name == check.replace(" ", "-")
        assert json.loads(file.read_text())["verdict"]["status"] == status, case
