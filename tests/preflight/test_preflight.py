"""What holds for every topic: nothing written unasked, a second run, trouble of one host, and reset."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec, User
from tests.e2e.cluster import Cluster, Finished
from tests.e2e.conftest import used_once
from tests.preflight.faults import do, lines, program, there
from tests.preflight.firewalls import WALLS, differences, install_packages, rules
from tests.preflight.layers import layer, without_times
from tests.preflight.terminals import CTRL_C, answered
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(240)]

NODES = ("node01", "node02", "node03")
# A host whose login may not become root.
BARE = "node04"
WALL = next(wall for wall in WALLS if wall.name == "nftables")

# Does not come to an end, and says that it was reached.
STUCK = 'case "$*" in "-f -") : >/run/applying; exec sleep 987 ;; esac\nexec /usr/sbin/nft "$@"'


@dataclass(frozen=True)
class Lab:
    """Hosts behind a firewall that denies, and an inventory of three of them."""

    cluster: Cluster
    inventory: Path

    @property
    def sandbox(self) -> Sandbox:
        return self.cluster.sandbox

    def preflight(self, *words: str) -> Finished:
        return self.cluster.run("preflight", str(self.inventory), *words)

    def said(self, *words: str) -> tuple[int, dict[str, Any]]:
        ended = self.preflight("--json", *words)
        return ended.code, document(ended)

    def look(self) -> dict[str, str]:
        """All that a host has of its own: every file of its layer, and its packet filters."""
        return {host: f"{layer(self.sandbox, host)}\n{rules(self.sandbox, host)}" for host in NODES}

    def on_terminal(self, answer: str, *words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "clusterkit", "preflight", str(self.inventory), *words]
        return answered(argv, answer, self.cluster.folder, self.cluster.env)


def document(ended: Finished) -> dict[str, Any]:
    assert ended.out, ended.err
    said: dict[str, Any] = json.loads(ended.out)
    validate("preflight", said)
    assert said["exit_code"] == ended.code
    return said


def unlike(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What only one of the two looks has, with its host."""
    return [f"{host}: {line}" for host in NODES for line in differences(before[host], after[host])]


def verdict(said: dict[str, Any], host: str, name: str = "firewall") -> dict[str, Any]:
    return dict(next(each for each in said["hosts"][host]["checks"] if each["name"] == name))


@pytest.fixture
def lab(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Iterator[Lab]:
    """The hosts run, and each drops what it was not told to accept; nothing of ours is on them."""
    reason = install_packages()
    if reason:
        pytest.skip(reason)
    spec = SandboxSpec.of(4, name="pf-general", python=(sys.executable,))
    sandbox = make_sandbox(spec.with_host(BARE, user=User("train", sudo="none")))
    for cluster in used_once(sandbox, tmp_path):
        for host in sandbox.hosts:
            do(sandbox, host, f"rm -f /etc/clusterkit.nft\n{WALL.deny}")
        inventory = tmp_path / "cluster.ini"
        text = sandbox.inventory.read_text()
        inventory.write_text(re.sub(rf"^{BARE} .*\n", "", text, flags=re.MULTILINE))
        yield Lab(cluster, inventory)


def test_nothing_is_written_unless_it_is_agreed_to(lab: Lab) -> None:
    before = lab.look()
    code, said = lab.said("--check", "--bandwidth", "--smoke")
    assert (code, {verdict(said, host)["status"] for host in NODES}) == (3, {"pending"})
    skipped = {each["name"] for each in said["between"] if each["status"] == "skipped"}
    assert {"bandwidth", "smoke"} <= skipped
    shown = lab.preflight("--diff", "-v")
    assert shown.code == 3
    assert "nothing was changed: there is no terminal to ask on (--yes does it without asking)" in shown.err
    assert "    would change closed: 30000-65535 from all other nodes → none; kept in: none → " in shown.out
    assert "    add set inet filter clusterkit" in shown.out
    assert "node[01-03]: clock ok: offset s " in shown.out
    assert "node[01-03]: skipped, since the inventory names no image: container runtime, image" in shown.out
    assert shown.out.endswith("\n3 changes pending\n")
    code, terminal = lab.on_terminal("n", "--diff")
    assert code == 3
    question = terminal.split("Go ahead?")[0]
    assert "node[01-03]: firewall: closed: 30000-65535 from all other nodes → none; kept in: none" in question
    assert "    because TCP 30000-65535 from nodes is dropped by" in question
    assert "nothing was changed" in terminal.split("Go ahead?")[1]
    # Who has just seen the commands does not see them again.
    assert "    add set inet filter clusterkit" in question
    assert terminal.count("add set inet filter clusterkit") == 1
    refused = lab.cluster.run("launch", str(lab.inventory), "drill.py")
    assert refused.code == 3
    assert "`clusterkit preflight` makes what is pending" in refused.err
    assert unlike(before, lab.look()) == []


def test_a_person_who_is_asked_can_leave(lab: Lab) -> None:
    before = lab.look()
    code, terminal = lab.on_terminal(CTRL_C)
    assert code == 130
    assert "interrupted" in terminal
    # With --json too the person sees what the question is about.
    code, terminal = lab.on_terminal("n", "--json")
    assert code == 3
    assert "node[01-03]: firewall: " in terminal.split("Go ahead?")[0]
    assert unlike(before, lab.look()) == []


def test_a_second_run_changes_nothing_and_reset_leaves_the_hosts_as_before(lab: Lab) -> None:
    before = lab.look()
    code, terminal = lab.on_terminal("y")
    assert code == 0
    assert re.search(
        r"node\[01-03\]: firewall changed: closed: 30000-65535 from all other nodes → none", terminal
    )
    assert "3 things changed" in terminal
    opened = lab.look()
    assert {line.split(":")[0] for line in unlike(before, opened)} == set(NODES)
    code, said = lab.said("--yes")
    assert code == 0
    assert "changed" not in said["summary"]
    assert unlike(opened, lab.look()) == []
    ended = lab.cluster.run("reset", str(lab.inventory), "--check", "--json")
    told = json.loads(ended.out)
    validate("reset", told)
    assert (ended.code, told["exit_code"]) == (3, 3)
    assert {step["status"] for host in NODES for step in told["hosts"][host]["steps"]} == {"pending"}
    for words, code in (("--check",), 3), (("--yes",), 0), (("--yes",), 0):
        ended = lab.cluster.run("reset", str(lab.inventory), *words)
        assert ended.code == code, ended.err
    assert ended.out == "preflight has left nothing on the hosts\n"
    looks = (before, lab.look())
    assert unlike(*({host: without_times(text) for host, text in look.items()} for look in looks)) == []


def test_a_host_that_is_down_from_the_start(lab: Lab) -> None:
    lab.sandbox.kill("node03")
    code, said = lab.said("--yes")
    assert code == 4
    assert not said["hosts"]["node03"]["reachable"]
    assert "node03" in said["hosts"]["node03"]["error"]
    assert {verdict(said, host)["status"] for host in ("node01", "node02")} == {"changed"}
    connect = next(each for each in said["between"] if each["name"] == "connect")
    assert connect["status"] == "ok", connect
    # The others are taken back, and the one that cannot be asked is named.
    ended = lab.cluster.run("reset", str(lab.inventory), "--yes")
    assert ended.code == 4
    assert "node03" in ended.out
    assert ended.out.endswith("taken back on node[01-02]\n")


@pytest.mark.parametrize(
    ("what", "befalls", "heals"),
    [("its power is cut", Sandbox.kill, Sandbox.start), ("its cable is pulled", Sandbox.cut, Sandbox.mend)],
    ids=["power", "cable"],
)
def test_a_host_that_is_lost_half_way(
    lab: Lab, what: str, befalls: Callable[[Sandbox, str], None], heals: Callable[[Sandbox, str], None]
) -> None:
    """Neither says a word to us: the connection is given up, and the others are brought to their end."""
    with there(program("/usr/local/sbin/nft", STUCK), lab.sandbox, "node03"):
        running = lab.cluster.start("preflight", str(lab.inventory), "--yes", "--json")
        end = time.monotonic() + 60
        while lab.sandbox.sh("node03", "test -e /run/applying").returncode != 0:
            assert time.monotonic() < end, running.err
            time.sleep(0.1)
        befalls(lab.sandbox, "node03")
        try:
            ended = running.wait(120)
        finally:
            heals(lab.sandbox, "node03")
    said = document(ended)
    assert ended.code == 4, what
    assert not said["hosts"]["node03"]["reachable"]
    assert said["hosts"]["node03"]["error"].startswith("node03 (")
    assert said["hosts"]["node03"]["hint"]
    assert {verdict(said, host)["status"] for host in ("node01", "node02")} == {"changed"}
    assert next(each for each in said["between"] if each["name"] == "connect")["status"] == "ok"


# A profile that never comes to its end, in the shell that is to read our script.
_STUCK_LOGIN = (
    "mv /root/.bashrc /root/.bashrc.kept; echo 'sleep 987' >/root/.bashrc",
    "mv /root/.bashrc.kept /root/.bashrc",
)


def test_a_host_that_is_not_read_in_time_is_named(lab: Lab) -> None:
    do(lab.sandbox, "node02", "touch /root/.bashrc")
    with there(lines(*_STUCK_LOGIN), lab.sandbox, "node02"):
        code, said = lab.said("--yes", "--timeout", "4")
        ended = lab.cluster.run("reset", str(lab.inventory), "--yes", "--timeout", "4")
    assert code == 4
    assert not said["hosts"]["node02"]["reachable"]
    assert "4 s" in said["hosts"]["node02"]["error"]
    assert {verdict(said, host)["status"] for host in ("node01", "node03")} == {"changed"}
    assert ended.code == 4
    assert re.search(r"node02.* 4 s", ended.out)
    assert ended.out.endswith("taken back on node[01,03]\n")


@pytest.mark.parametrize("become", ["true", "false"])
def test_a_login_that_may_not_become_root(lab: Lab, become: str) -> None:
    whole = lab.sandbox.inventory.read_text()
    text = re.sub(rf"^({BARE} .*?)( ansible_become=\w+)?$", rf"\1 ansible_become={become}", whole, flags=re.M)
    lab.inventory.write_text(text)
    code, said = lab.said("--yes")
    assert code == 1
    found = verdict(said, BARE)
    assert found["status"] == "unknown"
    assert "--ask-become-pass" in found["hint"]
    assert {verdict(said, host)["status"] for host in NODES} == {"changed"}
    # Reset does not say that nothing is there where it could not look.
    ended = lab.cluster.run("reset", str(lab.inventory), "--yes")
    assert ended.code == 1
    assert f"{BARE}: firewall could not be looked for" in ended.out
    assert "taken back on node[01-03]" in ended.out
