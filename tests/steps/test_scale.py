"""What one preflight of 256 hosts costs this machine, the hosts' own answers apart."""

from __future__ import annotations

import re
import time

from clusterkit.between.vote import vote
from clusterkit.facts import Facts
from clusterkit.inventory.model import Settings
from clusterkit.planning.topology import arrange_able
from clusterkit.steps import ALL, Fleet, judge_all
from tests.facts.recorded import facts, output


def host(number: int, usual: Facts) -> Facts:
    """An ordinary GPU host with an address of its own."""
    shown = output("network", "one-training-network")
    address = f"10.0.{number // 250}.{number % 250 + 1}"
    text = re.sub(r"inet 10\.0\.0\.\d+/\d+", f"inet {address}/16", shown.stdout)
    own = facts(f"gpu{number:03d}", network=type(shown)(shown.status, text, shown.stderr))
    return Facts(own.host, {**usual.values, "network": own.values["network"]}, usual.clock)


def test_256_hosts_are_planned_judged_and_voted_on_in_two_seconds() -> None:
    """CPU time of this process, so that a loaded machine does not count."""
    usual = facts("usual")
    found = {f"gpu{number:03d}": host(number, usual) for number in range(256)}
    members = {alias: Settings(alias, alias) for alias in found}
    began = time.process_time()
    arranged, _ = arrange_able(tuple(members.values()), found, "preflight")
    made = Fleet(members, found, arranged.topology if arranged else None)
    verdicts = judge_all(ALL, made)
    entries = vote(made)
    took = time.process_time() - began
    assert arranged is not None
    assert len(arranged.topology.nodes) == 256
    assert len(verdicts) == 256 * len(ALL)
    assert entries
    assert took < 2
