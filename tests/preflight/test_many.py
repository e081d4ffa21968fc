"""More hosts than every pair is tried of, for real: the sample still touches each of them in both directions.

Not `--all-pairs`: these hosts share one kernel, whose table of neighbours has room for 1024 of 34 * 33.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.e2e.cluster import Cluster
from tests.preflight.faults import lines, there, told
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(300)]

COUNT = 34
HOSTS = tuple(f"node{number:02}" for number in range(1, COUNT + 1))
# Not one of the first, with which everybody is tried.
SHUT, MUTE = "node23", "node34"


JOB_PORTS = "tcp dport 30000-65535"


def table(**rules: str) -> str:
    """A table with one rule on each of these hooks; what belongs to an open connection passes before it."""
    chains = (
        f"chain {hook} {{ type filter hook {hook} priority 0; ct state established accept; {rule}; }};"
        for hook, rule in rules.items()
    )
    return f"nft 'table inet drill {{ {' '.join(chains)} }}'"


COUNTED = table(input=f"{JOB_PORTS} counter", output=f"{JOB_PORTS} counter")
UNDO = "nft delete table inet drill"


def counted(sandbox: Sandbox, host: str) -> dict[str, int]:
    """How many connections to ports of a job came in and went out."""
    rules = json.loads(told(sandbox, host, "nft -j list table inet drill"))["nftables"]
    return {
        each["rule"]["chain"]: part["counter"]["packets"]
        for each in rules
        if "rule" in each
        for part in each["rule"]["expr"]
        if "counter" in part
    }


def test_the_sample_of_pairs_touches_every_host_both_ways(
    make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path
) -> None:
    sandbox = make_sandbox(SandboxSpec.of(COUNT, name="pf-many", python=(sys.executable,)))
    (tmp_path / "project").mkdir()
    cluster = Cluster(sandbox, tmp_path / "project")

    def connects() -> list[Mapping[str, Any]]:
        ended = cluster.run("preflight", "INVENTORY", "--check", "--json", limit=180)
        assert ended.out, ended.err
        said = json.loads(ended.out)
        validate("preflight", said)
        assert all(each["reachable"] for each in said["hosts"].values())
        return [each for each in said["between"] if each["name"] == "connect"]

    with ExitStack() as stack:
        for host in HOSTS:
            stack.enter_context(there(lines(COUNTED, UNDO), sandbox, host))
        (sound,) = connects()
        seen = {host: counted(sandbox, host) for host in HOSTS}
    pairs = int(sound["detail"].split()[0])
    assert 2 * COUNT < pairs < COUNT * (COUNT - 1) // 2
    assert all(each["input"] > 4 and each["output"] > 4 for each in seen.values()), seen
    # Four ports for each pair that is said to have been tried.
    assert sum(each["output"] for each in seen.values()) >= 4 * pairs

    reject = f"{JOB_PORTS} reject with tcp reset"
    with (
        there(lines(table(input=reject), UNDO), sandbox, SHUT),
        there(lines(table(output=reject), UNDO), sandbox, MUTE),
    ):
        wrong = connects()
    assert all(each["to"] == SHUT or each["from"] == MUTE for each in wrong)
    # Several others tell of each.
    assert len({each["from"] for each in wrong if each["to"] == SHUT}) > 2
    assert len({each["to"] for each in wrong if each["from"] == MUTE}) > 2
