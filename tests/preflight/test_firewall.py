"""ufw, firewalld, nftables and both iptables, each set to deny: opened, proved, kept, taken back.

All five firewalls stand in one cluster of five hosts; a sixth host is no node. What happened is told once, by
`story`, and every test looks at one part of it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.e2e.cluster import Cluster
from tests.preflight.faults import do
from tests.preflight.firewalls import (
    PORTS,
    WALLS,
    Wall,
    differences,
    install_packages,
    install_persistence,
    listen,
    reached,
    rules,
)
from tests.preflight.layers import layer, without_times

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]

NODES = {wall.name: f"node0{number}" for number, wall in enumerate(WALLS, 1)}
OUTSIDER = "node06"
LEAVES = NODES["iptables-legacy"]
NAMES = [wall.name for wall in WALLS]

Reached = Mapping[str, tuple[int, ...]]


@dataclass
class Story:
    """What was seen at each point, in this order."""

    rules: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    reached: dict[str, dict[str, Reached]] = field(default_factory=dict)
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)

    def verdict(self, when: str, host: str, name: str = "firewall") -> dict[str, Any]:
        """A check of a host in one of the preflights."""
        checks = self.said[when]["hosts"][host]["checks"]
        return dict(next(each for each in checks if each["name"] == name))


class Teller:
    """Does one thing after the other, and writes down what can be seen then."""

    def __init__(self, cluster: Cluster, inventory: Path) -> None:
        self.cluster, self.sandbox, self.inventory = cluster, cluster.sandbox, inventory
        self.story = Story()
        self.addresses = {host: self.sandbox.addresses(host)[0] for host in NODES.values()}

    def preflight(self, when: str, *words: str) -> None:
        ended = self.cluster.run("preflight", str(self.inventory), "--json", *words, limit=180)
        assert ended.out, ended.err
        self.story.said[when] = json.loads(ended.out)
        self.story.codes[when] = ended.code

    def reset(self, when: str) -> None:
        ended = self.cluster.run("reset", str(self.inventory), "--yes", limit=180)
        assert ended.code == 0, ended.err
        self.look(when)

    def restart(self) -> None:
        for wall in WALLS:
            if wall.restart:
                do(self.sandbox, NODES[wall.name], wall.restart)

    def look(self, when: str) -> None:
        self.story.rules[when] = {host: rules(self.sandbox, host) for host in NODES.values()}
        self.story.files[when] = {host: layer(self.sandbox, host) for host in NODES.values()}

    def knock(self, when: str) -> None:
        sources = (*NODES.values(), OUTSIDER)
        with ThreadPoolExecutor(len(sources) + 1) as pool:
            found = {host: pool.submit(self._from, host) for host in sources}
            found["controller"] = pool.submit(reached, None, "", sys.executable, self.addresses)
        self.story.reached[when] = {source: each.result() for source, each in found.items()}

    def _from(self, host: str) -> Reached:
        return reached(self.sandbox, host, sys.executable, self.addresses)


@pytest.fixture(scope="module")
def walls(make_sandbox: Callable[[SandboxSpec], Sandbox]) -> Sandbox:
    """Five hosts, each behind another firewall that denies, and one more."""
    reason = install_packages()
    if reason:
        pytest.skip(reason)
    sandbox = make_sandbox(SandboxSpec.of(6, name="pf-firewall", python=(sys.executable,)))
    for wall in WALLS:
        do(sandbox, NODES[wall.name], wall.deny)
    for host in sandbox.hosts:
        listen(sandbox, host, sys.executable)
    return sandbox


@pytest.fixture(scope="module")
def story(walls: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A year of a cluster in half a minute."""
    folder = tmp_path_factory.mktemp("firewall")
    (folder / "project").mkdir()
    (folder / "packages").mkdir()
    if not install_persistence(walls, NODES["iptables-nft"], folder / "packages"):
        pytest.skip("Debian's netfilter-persistent cannot be had")
    inventory = folder / "cluster.ini"
    text = walls.inventory.read_text()
    inventory.write_text(re.sub(rf"^{OUTSIDER} .*\n", "", text, flags=re.MULTILINE))
    teller = Teller(Cluster(walls, folder / "project"), inventory)
    tell(teller)
    yield teller.story
    teller.cluster.finish()


def tell(teller: Teller) -> None:
    """Closed; opened; taken back; opened again; restarted; a host leaves; taken back."""
    teller.look("closed")
    teller.knock("closed")
    teller.preflight("check", "--check")
    teller.look("check")
    teller.preflight("open", "--yes")
    teller.look("open")
    teller.knock("open")
    teller.preflight("again", "--yes")
    teller.look("again")
    teller.reset("taken back")
    teller.preflight("reopened", "--yes")
    teller.restart()
    teller.knock("restarted")
    teller.preflight("restarted", "--yes")
    whole = teller.inventory.read_text()
    teller.inventory.write_text(re.sub(rf"^{LEAVES} .*\n", "", whole, flags=re.MULTILINE))
    teller.preflight("left", "--yes")
    teller.knock("left")
    teller.restart()
    teller.knock("left and restarted")
    teller.inventory.write_text(whole)
    teller.reset("the end")
    teller.knock("the end")


def of(name: str) -> Wall:
    return next(wall for wall in WALLS if wall.name == name)


def peers(host: str) -> list[str]:
    return [other for other in NODES.values() if other != host]


def who_reaches(story: Story, when: str, host: str) -> dict[str, tuple[int, ...]]:
    return {source: found[host] for source, found in story.reached[when].items() if source != host}


@pytest.mark.parametrize("name", NAMES)
def test_nobody_gets_in_at_first(story: Story, name: str) -> None:
    assert set(who_reaches(story, "closed", NODES[name]).values()) == {()}


@pytest.mark.parametrize("name", NAMES)
def test_a_look_says_who_decides_and_what_is_closed(story: Story, name: str) -> None:
    host = NODES[name]
    found = story.verdict("check", host)
    assert found["status"] == "pending"
    assert name in found["actual"]["decided_by"]
    assert found["actual"]["closed"] == ["30000-65535 from all other nodes"]
    assert "TCP 30000-65535 from nodes is dropped by `" in found["message"]
    # Pending changes, and pairs of hosts that do not reach each other.
    assert story.codes["check"] in (1, 3)


def test_docker_is_recognised(story: Story) -> None:
    decided_by = story.verdict("check", NODES["iptables-nft"])["actual"]["decided_by"]
    assert decided_by == "iptables-nft; Docker for its containers' networks"


@pytest.mark.parametrize("name", NAMES)
def test_a_look_changes_nothing(story: Story, name: str) -> None:
    host = NODES[name]
    assert differences(story.rules["closed"][host], story.rules["check"][host]) == []
    assert differences(story.files["closed"][host], story.files["check"][host]) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_open_to_the_nodes(story: Story, name: str) -> None:
    host = NODES[name]
    assert story.verdict("open", host)["status"] == "changed"
    found = who_reaches(story, "open", host)
    assert {found[peer] for peer in peers(host)} == {PORTS}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_closed_to_everybody_else(story: Story, name: str) -> None:
    for when in ("open", "restarted", "left", "left and restarted"):
        found = who_reaches(story, when, NODES[name])
        assert (found[OUTSIDER], found["controller"]) == ((), ()), when


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_was_there_is_lost(story: Story, name: str) -> None:
    changed = differences(story.rules["closed"][NODES[name]], story.rules["open"][NODES[name]])
    lost = [line for line in changed if line.startswith("- ") and not line.startswith("- == /etc")]
    assert lost == []
    assert all("0.0.0.0/0" not in line for line in changed)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_changes_nothing(story: Story, name: str) -> None:
    host = NODES[name]
    assert story.verdict("again", host)["status"] == "ok"
    assert story.rules["again"][host] == story.rules["open"][host]
    assert story.codes["again"] == 0


@pytest.mark.parametrize("name", [wall.name for wall in WALLS if wall.restart])
def test_it_is_kept_over_a_restart(story: Story, name: str) -> None:
    host = NODES[name]
    found = who_reaches(story, "restarted", host)
    assert {found[peer] for peer in peers(host)} == {PORTS}
    assert story.verdict("restarted", host)["status"] == "ok"
    assert story.verdict("restarted", host)["actual"]["kept_in"] == [of(name).kept_in]


def test_what_is_live_only_says_so(story: Story) -> None:
    found = story.verdict("open", LEAVES, "firewall at boot")
    assert found["status"] == "warning"
    assert "until the next boot only: iptables-legacy" in found["message"]
    assert "iptables-persistent (Debian)" in found["hint"]


def test_dockers_chains_are_not_saved(story: Story, walls: Sandbox) -> None:
    assert "DOCKER" in story.rules["open"][NODES["iptables-nft"]]
    assert b"DOCKER" not in walls.read(NODES["iptables-nft"], "/etc/iptables/rules.v4")


@pytest.mark.parametrize("name", [name for name in NAMES if NODES[name] != LEAVES])
def test_a_host_that_left_the_inventory_is_shut_out(story: Story, name: str) -> None:
    host = NODES[name]
    assert story.verdict("left", host)["status"] == "changed"
    for when in ("left", "left and restarted"):
        found = who_reaches(story, when, host)
        assert found[LEAVES] == (), when
        assert {found[peer] for peer in peers(host) if peer != LEAVES} == {PORTS}, when


@pytest.mark.parametrize("name", NAMES)
def test_reset_takes_everything_back_and_nothing_else(story: Story, name: str) -> None:
    host = NODES[name]
    assert story.rules["taken back"][host] == story.rules["closed"][host]
    before, after = (without_times(story.files[when][host]) for when in ("closed", "taken back"))
    assert differences(before, after) == []
    # The comparison sees what was written in between, where this firewall has a file.
    opened = differences(before, without_times(story.files["open"][host]))
    assert bool(opened) == bool(of(name).kept_in)


@pytest.mark.parametrize("name", NAMES)
def test_reset_finds_what_a_restart_has_loaded(story: Story, name: str) -> None:
    host = NODES[name]
    before, after = story.rules["closed"][host], story.rules["the end"][host]
    if name == "iptables-nft":
        # Its service has loaded the tables anew, as they were before Docker came.
        assert "clusterkit" not in after
        before, after = (
            "\n".join(line for line in text.splitlines() if "INPUT" in line) for text in (before, after)
        )
    assert not differences(before, after)
    assert set(who_reaches(story, "the end", host).values()) == {()}


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_opened_again(story: Story, name: str) -> None:
    assert story.verdict("reopened", NODES[name])["status"] == "changed"
