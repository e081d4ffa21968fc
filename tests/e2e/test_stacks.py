"""A job that hangs: every rank says where it stands, and the one that the others wait for is named."""

from __future__ import annotations

import json
import signal

import pytest

from tests.e2e.cluster import Cluster
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.paddle, pytest.mark.timeout(240)]


def test_the_rank_that_the_others_wait_for_is_named(unequal: Cluster) -> None:
    """Real Paddle over gloo: ranks 0-2 are on node01, 3 is on node02, 4 and 5 are on node03."""
    launch = unequal.start("launch", "--grace", "5", "INVENTORY", "stuck.py", "3", "120")
    launch.until(r"\[3 node02\] loading\n", 120)
    for rank in (0, 5):
        launch.until(rf"\[{rank} \w+\] step 2\n", 60)
    said = unequal.run("stacks")
    assert said.code == 0, said.err
    last = "5 ranks in all_reduce, from stuck.py:20; rank 3 in stuck.py:12 (load_data)"
    assert said.out.splitlines()[-1] == last, said.out
    assert "ranks 0-2,4-5 (node[01,03]): all_reduce, from stuck.py:20\n" in said.out
    one = unequal.run("stacks", "--json", "--rank", "3-4", "--all-threads")
    document = json.loads(one.out)
    validate("stacks", document)
    assert [group["ranks"] for group in document["groups"]] == [[3], [4]]
    assert document["groups"][0]["frames"][0]["function"] == "load_data"
    launch.send(signal.SIGINT)
    assert launch.wait().code == 130
    over = unequal.run("stacks")
    assert over.code == 2, over.err
    assert "nothing of it runs whose stacks could be taken" in over.err
    assert len(list(unequal.state.glob("clusterkit/runs/*/stacks/*.json"))) >= 1
