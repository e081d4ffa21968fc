"""What is proved between hosts, on real hosts with real faults between them. Nothing may stay on a host."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterkit import between, preflight, smoke
from clusterkit import inventory as inventories
from clusterkit.between import Options, Proof
from clusterkit.interrupts import Interrupts
from clusterkit.inventory.model import Settings
from clusterkit.preflight import Finding, Reading, Target
from clusterkit.remote import Connections, ConnectOptions, Remote
from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.e2e.cluster import Cluster, clone_jobs
from tests.preflight.faults import do

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(300)]

JOB_PORTS = "30000-65535"


class Lab:
    """Four hosts that meet on eth1; ours is eth0. Facts are read again only if asked for."""

    def __init__(self, sandbox: Sandbox, connections: Connections) -> None:
        self.sandbox = sandbox
        found = inventories.load(sandbox.inventory)
        hosts = inventories.select(found, "all")
        self.members = tuple(inventories.settings(found, host)[0] for host in hosts)
        self.remotes: dict[str, Remote] = {each.alias: connections.to(each) for each in self.members}
        self.reading = self.read()

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.sandbox.hosts

    def read(self) -> Reading:
        self.reading = preflight.read(
            Target(self.members, self.hosts), self.remotes, 16, threading.Event(), lambda what, waiting: None
        )
        assert not self.reading.unreachable
        return self.reading

    def prove(self, doing: preflight.Doing = lambda what, waiting: None, **options: object) -> Proof:
        made = Options(**options)  # type: ignore[arg-type]
        return between.prove(self.reading.fleet, self.hosts, self.remotes, made, doing, threading.Event())

    def address(self, host: str) -> str:
        return self.sandbox.addresses(host)[-1]

    def rules(self, host: str, hook: str, *rules: str) -> Callable[[], None]:
        """A table of its own on a host's hook, which lets answers through; the way to remove it."""
        chain = f"add chain inet drill c {{ type filter hook {hook} priority 0; }}"
        lines = ["add table inet drill", chain, "add rule inet drill c ct state established accept"]
        text = "\n".join([*lines, *(f"add rule inet drill c {rule}" for rule in rules)])
        do(self.sandbox, host, "nft -f -", stdin=text)
        return lambda: do(self.sandbox, host, "nft delete table inet drill")

    def left(self) -> list[tuple[str, str]]:
        """Programs of ours that still run on a host."""
        return [
            (host, " ".join(process.argv)[:80])
            for host in self.hosts
            for process in self.sandbox.processes(host)
            if "clusterkit_reach" in " ".join(process.argv)
        ]

    def nothing_is_left(self, limit: float = 10.0) -> bool:
        end = time.monotonic() + limit
        while self.left() and time.monotonic() < end:
            time.sleep(0.1)
        return not self.left()


@pytest.fixture(scope="module")
def lab(make_sandbox: Callable[[SandboxSpec], Sandbox]) -> Iterator[Lab]:
    sandbox = make_sandbox(SandboxSpec.of(4, name="pf-between", networks=2, python=(sys.executable,)))
    with Connections(ConnectOptions()) as connections:
        yield Lab(sandbox, connections)


@contextmanager
def all_undone(*undo: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        for each in undo:
            each()


def wrong(made: Proof) -> list[Finding]:
    return [found for found in made.findings if found.status not in ("ok", "skipped")]


def where(found: Sequence[Finding]) -> set[tuple[str, str, str]]:
    return {(each.name, each.source, each.to) for each in found}


def names(made: Proof) -> dict[str, str]:
    return {found.name: found.detail for found in made.findings}


def test_four_hosts_that_reach_each_other(lab: Lab) -> None:
    files = {host: snapshot(lab, host) for host in lab.hosts}
    made = lab.prove()
    assert wrong(made) == []
    said = names(made)
    assert said["connect"] == "12 ordered pairs on 4 ports each"
    assert said["mtu"] == "every path carries 1500 bytes"
    assert re.fullmatch(r"\S+ ms typical, \S+ ms at most \(node0\d to node0\d\)", said["round trip"])
    assert len(made.round_trips) == 12
    assert all(0 < seconds < 1 for seconds in made.round_trips.values())
    assert lab.nothing_is_left()
    assert {host: snapshot(lab, host) for host in lab.hosts} == files


def snapshot(lab: Lab, host: str) -> str:
    """Every file that a program could have written, with its time."""
    seen = lab.sandbox.sh(
        host, "find /root /home /etc /tmp /var /run /dev/shm -xdev -type f -printf '%p %T@ %s\\n'"
    )
    # sshd notes who was there.
    return "\n".join(line for line in seen.stdout.splitlines() if "/var/log" not in line)


def test_one_pair_is_dropped_and_one_refused(lab: Lab) -> None:
    one, two, three, _ = (lab.address(host) for host in lab.hosts)
    undo = [
        lab.rules("node02", "input", f"ip saddr {one} tcp dport {JOB_PORTS} drop"),
        lab.rules("node01", "input", f"ip saddr {three} tcp dport 30000-32000 reject with tcp reset"),
        lab.rules("node04", "output", f"ip daddr {two} tcp dport {JOB_PORTS} drop"),
    ]
    with all_undone(*undo):
        began = time.monotonic()
        made = lab.prove()
        took = time.monotonic() - began
    found = wrong(made)
    assert where(found) == {
        ("connect", "node01", "node02"),
        ("connect", "node03", "node01"),
        ("connect", "node04", "node02"),
    }
    detail = {(each.source, each.to): each.detail for each in found}
    assert detail["node01", "node02"].endswith("(ephemeral): DROP, no answer within 2.5 s")
    assert re.search(
        r"port 30000 \(port_range\): REJECT, refused .*; port .*: open", detail["node03", "node01"]
    )
    assert "DROP" in detail["node04", "node02"]
    assert took < 20, "one wait for all that are silent"
    assert wrong(lab.prove()) == []


def test_an_answer_that_is_dropped_is_told_from_a_request(lab: Lab) -> None:
    one = lab.address("node01")
    with all_undone(drop_answers(lab, "node03", one)):
        found = wrong(lab.prove())
    (back,) = (each for each in found if (each.source, each.to) == ("node01", "node03"))
    assert "DROP on the way back: the request arrives" in back.detail


def drop_answers(lab: Lab, host: str, address: str) -> Callable[[], None]:
    chain = "add chain inet drill c { type filter hook output priority 0; }"
    rule = f"add rule inet drill c ip daddr {address} tcp flags & (syn|ack) == syn|ack drop"
    do(lab.sandbox, host, "nft -f -", stdin=f"add table inet drill\n{chain}\n{rule}\n")
    return lambda: do(lab.sandbox, host, "nft delete table inet drill")


def test_an_address_that_nobody_has_any_more(lab: Lab) -> None:
    """The host answers us on eth0, and its cable of the training network is pulled."""
    lab.sandbox.cut("node04", 1)
    with all_undone(lambda: lab.sandbox.mend("node04", 1)):
        do(lab.sandbox, "node01", f"ip neigh flush to {lab.address('node04')}")
        found = wrong(lab.prove())
    detail = {(each.source, each.to): each.detail for each in found}
    assert all("node04" in pair for pair in detail)
    assert len(detail) == 6
    assert f"no machine answers for {lab.address('node04')} on eth1" in detail["node01", "node04"]


@pytest.mark.parametrize(
    ("host", "hook", "end", "status", "code"),
    [
        # What preflight itself can open is as pending as that change; rules on the way out are a person's.
        ("node02", "input", "saddr", "pending", 3),
        ("node01", "output", "daddr", "failed", 1),
    ],
)
def test_the_command_names_host_and_rule(
    lab: Lab, tmp_path: Path, host: str, hook: str, end: str, status: str, code: int
) -> None:
    cluster = Cluster(lab.sandbox, clone_jobs(tmp_path / "project"))
    other = lab.address("node01" if end == "saddr" else "node02")
    with all_undone(lab.rules(host, hook, f"ip {end} {other} tcp dport {JOB_PORTS} drop")):
        ended = cluster.run("preflight", "INVENTORY", "--check", "--json")
        said = json.loads(ended.out)
    (found,) = (each for each in said["between"] if each["name"] == "connect")
    assert (found["from"], found["to"], found["status"]) == ("node01", "node02", status)
    assert f"blocked by {host}: nft" in found["detail"]
    assert ended.code == code
    assert {each["fact"] for each in said["vote"]} >= {"Paddle", "Python", "MTU"}
    assert lab.nothing_is_left()


def test_what_blocks_between_the_hosts_is_told_from_their_own_rules(lab: Lab, tmp_path: Path) -> None:
    """A switch, which is this machine's bridge, keeps one host from opening connections to another."""
    one, two = lab.address("node01"), lab.address("node02")
    blocked = f"ip saddr {one} ip daddr {two} tcp dport {JOB_PORTS} tcp flags & (syn|ack) == syn drop"
    chain = "add chain bridge drill c { type filter hook forward priority 0; }"
    on_this_machine(f"add table bridge drill\n{chain}\nadd rule bridge drill c {blocked}\n")
    cluster = Cluster(lab.sandbox, clone_jobs(tmp_path / "project"))
    with all_undone(lambda: on_this_machine("delete table bridge drill\n")):
        ended = cluster.run("preflight", "INVENTORY", "--check", "--json")
    said = json.loads(ended.out)
    (found,) = (each for each in said["between"] if each["name"] == "connect")
    assert (found["from"], found["to"], found["status"]) == ("node01", "node02", "failed")
    assert "DROP" in found["detail"]
    assert "so something between them does (security group, switch ACL)" in found["detail"]
    assert found["hint"].startswith("ask who runs the network to let ")
    assert f"from {one} to {two}" in found["hint"]
    assert ended.code == 1


def on_this_machine(lines: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=lines, text=True, check=True, capture_output=True)


def test_bandwidth_is_drawn_by_the_command(lab: Lab, tmp_path: Path) -> None:
    cluster = Cluster(lab.sandbox, clone_jobs(tmp_path / "project"))
    ended = cluster.run("preflight", "INVENTORY", "--yes", "--bandwidth", "--limit", "node01,node02")
    assert ended.code == 0, ended.err
    (heading,) = (line for line in ended.out.splitlines() if line.startswith("Gbit/s"))
    assert heading.split() == ["Gbit/s", "node01", "node02"]


# --- the path --------------------------------------------------------------------------------------


def cable(lab: Lab, host: str) -> str:
    """This machine's end of a host's cable: the switch port."""
    link = json.loads(lab.sandbox.sh(host, "ip -j link show eth1").stdout)[0]["link_index"]
    for each in json.loads(subprocess.check_output(["ip", "-j", "link"])):
        if each["ifindex"] == link:
            return str(each["ifname"])
    raise AssertionError(f"{host} has no cable {link}")


@contextmanager
def small_switch_port(lab: Lab, host: str, mtu: int) -> Iterator[None]:
    """The port carries less than the interfaces say, and tells nobody."""
    port = cable(lab, host)
    offloads = ["tso", "gso", "gro"]

    def switch(state: str, size: int) -> None:
        words = [word for name in offloads for word in (name, state)]
        for one in lab.hosts:
            do(lab.sandbox, one, f"ethtool -K eth1 {' '.join(words)}")
        subprocess.run(["ethtool", "-K", port, *words], check=True, capture_output=True)
        subprocess.run(["ip", "link", "set", port, "mtu", str(size)], check=True, capture_output=True)

    try:
        switch("off", mtu)
        yield
    finally:
        switch("on", 1500)


@pytest.mark.parametrize("udp", ["open", "closed"])
def test_a_switch_port_that_swallows_large_packets(lab: Lab, udp: str) -> None:
    undo = []
    with small_switch_port(lab, "node02", 1300):
        if udp == "closed":
            undo = [lab.rules(host, "input", "meta l4proto udp drop") for host in lab.hosts]
        with all_undone(*undo):
            made = lab.prove()
    assert [(each.name, each.status, each.source, each.to) for each in wrong(made)] == [
        ("mtu", "failed", "node02", "")
    ]
    said = names(made)
    how = "small ones pass" if udp == "open" else "a TCP transfer stalls after it has connected"
    assert said["mtu"] == f"packets of 1500 bytes are lost on the way, {how}, to and from all others"
    assert said["connect"].startswith("12 ordered pairs")


def test_closed_udp_alone_is_no_fault(lab: Lab) -> None:
    undo = [lab.rules(host, "input", "meta l4proto udp drop") for host in lab.hosts]
    with all_undone(*undo):
        made = lab.prove()
    assert wrong(made) == []
    assert names(made)["mtu"] == "every path carries 1500 bytes"


def test_different_mtus_are_put_to_the_vote_and_carried(lab: Lab) -> None:
    do(lab.sandbox, "node03", "ip link set eth1 mtu 1400")
    with all_undone(lambda: do(lab.sandbox, "node03", "ip link set eth1 mtu 1500"), lambda: void(lab.read())):
        reading = lab.read()
        made = lab.prove()
        votes = {entry.fact: entry for entry in between.vote(reading.fleet)}
    assert (votes["MTU"].majority, dict(votes["MTU"].odd)) == ("1500", {"node03": "1400"})
    assert votes["MTU"].status == "warning"
    assert wrong(made) == []
    assert names(made)["mtu"] == "every path carries 1400 or 1500 bytes"


def void(_: object) -> None:
    return None


_FAR = """
for name in all eth1; do cat /proc/sys/net/ipv4/conf/$name/rp_filter; done >/run/rp_filter
{python} /run/long_way.py 0.1 eth1 {source} {others} </dev/null >/run/long_way.out 2>&1 &
echo $! >/run/long_way.pid
until grep -q ready /run/long_way.out; do
    kill -0 $(cat /run/long_way.pid) || {{ cat /run/long_way.out >&2; exit 1; }}
    sleep 0.05
done
"""
_NEAR = """
kill -KILL $(cat /run/long_way.pid)
while [ -e /sys/class/net/longway ]; do sleep 0.05; done
for name in all eth1; do read -r was; echo $was >/proc/sys/net/ipv4/conf/$name/rp_filter; done </run/rp_filter
rm /run/long_way.* /run/rp_filter
"""


@contextmanager
def far(lab: Lab, host: str, *others: str) -> Iterator[None]:
    """Packets of that host take 100 ms to these others."""
    do(lab.sandbox, host, "cat >/run/long_way.py", Path(__file__).with_name("long_way.py").read_text())
    addresses = " ".join(lab.address(other) for other in others)
    script = _FAR.format(python=sys.executable, source=lab.address(host), others=addresses)
    with all_undone(lambda: do(lab.sandbox, host, _NEAR)):
        do(lab.sandbox, host, script)
        yield


def test_a_host_in_another_place_is_named(lab: Lab) -> None:
    with far(lab, "node04", "node01", "node02", "node03"):
        made = lab.prove()
    (found,) = wrong(made)
    assert (found.name, found.status, found.source, found.to) == ("round trip", "warning", "node04", "")
    trips = re.fullmatch(r"(\d+) ms and more to and from all others, (\S+) ms is typical", found.detail)
    assert trips is not None, found.detail
    assert int(trips[1]) >= 100 > 5 * float(trips[2])
    assert names(made)["connect"].startswith("12 ordered pairs")
    assert wrong(lab.prove()) == []


def test_a_long_way_between_two_hosts_is_named(lab: Lab) -> None:
    with far(lab, "node04", "node03"):
        made = lab.prove()
    assert where(wrong(made)) == {
        ("round trip", "node03", "node04"),
        ("round trip", "node04", "node03"),
    }
    assert {each.status for each in wrong(made)} == {"warning"}
    slow = {pair for pair, seconds in made.round_trips.items() if seconds >= 0.1}
    assert slow == {("node03", "node04"), ("node04", "node03")}


# --- bandwidth -------------------------------------------------------------------------------------


def shaped(lab: Lab, host: str, *lines: str) -> Callable[[], None]:
    do(lab.sandbox, host, "\n".join(lines))
    return lambda: do(lab.sandbox, host, "tc qdisc del dev eth1 root")


def test_bandwidth_of_equal_hosts_names_nobody(lab: Lab) -> None:
    made = lab.prove(bandwidth=True, stream_s=0.2)
    assert made.bandwidth is not None
    assert len(made.bandwidth.rates) == 12
    assert not made.bandwidth.failures
    assert "typical" in names(made)["bandwidth"]


def test_a_slow_host_is_named(lab: Lab) -> None:
    undo = shaped(lab, "node03", "tc qdisc add dev eth1 root tbf rate 100mbit burst 64kb latency 50ms")
    with all_undone(undo):
        made = lab.prove(bandwidth=True, stream_s=0.2)
    assert ("bandwidth", "node03", "") in where(wrong(made))
    (found,) = (each for each in wrong(made) if each.source == "node03" and not each.to)
    rate = re.search(r"sends (\d+(\.\d+)?) Mbit/s at most", found.detail)
    assert rate is not None, found.detail
    assert 50 < float(rate[1]) < 150
    assert made.bandwidth is not None
    slow = {source for (source, _), rate in made.bandwidth.rates.items() if rate < 30e6}
    assert slow == {"node03"}


def test_a_slow_pair_is_named(lab: Lab) -> None:
    to = lab.address("node04")
    undo = shaped(
        lab,
        "node02",
        "tc qdisc add dev eth1 root handle 1: htb default 10",
        "tc class add dev eth1 parent 1: classid 1:10 htb rate 100gbit burst 10mb quantum 60000",
        "tc class add dev eth1 parent 1: classid 1:20 htb rate 100mbit quantum 60000",
        "tc qdisc add dev eth1 parent 1:20 tbf rate 100mbit burst 64kb latency 50ms",
        f"tc filter add dev eth1 parent 1: protocol ip u32 match ip dst {to}/32 flowid 1:20",
    )
    with all_undone(undo):
        made = lab.prove(bandwidth=True, stream_s=0.2)
    assert ("bandwidth", "node02", "node04") in where(wrong(made))
    assert ("bandwidth", "node02", "") not in where(wrong(made))
    assert ("bandwidth", "", "node04") not in where(wrong(made))


# --- what ends early -------------------------------------------------------------------------------


def test_a_host_that_dies_half_way(lab: Lab) -> None:
    """It is named once, within a bounded time; the others are measured without it."""
    killed = threading.Event()

    def doing(what: str, waiting: Sequence[str]) -> None:
        if what.startswith("measuring bandwidth, round 2") and not killed.is_set():
            killed.set()
            lab.sandbox.kill("node04")

    began = time.monotonic()
    try:
        made = lab.prove(doing, bandwidth=True, stream_s=0.2)
    finally:
        lab.sandbox.start("node04")
    assert time.monotonic() - began < 90
    assert killed.is_set()
    found = [each for each in wrong(made) if "node04" in (each.source, each.to)]
    assert [(each.name, each.status) for each in found] == [("proof", "failed")]
    assert made.bandwidth is not None
    assert set(made.bandwidth.hosts) == {"node01", "node02", "node03"}
    assert len(made.bandwidth.rates) == 6
    assert {("node01", "node02"), ("node02", "node01")} <= set(made.round_trips)
    assert lab.nothing_is_left()


def test_nothing_stays_when_we_are_killed(lab: Lab, tmp_path: Path) -> None:
    cluster = Cluster(lab.sandbox, clone_jobs(tmp_path / "project"))
    running = cluster.start("preflight", "INVENTORY", "--yes", "--bandwidth")
    end = time.monotonic() + 60
    while not lab.left() and time.monotonic() < end:
        time.sleep(0.05)
    assert lab.left(), running.err
    running.send(signal.SIGKILL)
    assert lab.nothing_is_left()
    running.wait()


@pytest.mark.paddle
def test_smoke_on_two_hosts_with_real_paddle(lab: Lab) -> None:
    members: tuple[Settings, ...] = lab.members[:2]
    before = {host: lab.sandbox.sh(host, "ls -A /root").stdout for host in lab.hosts[:2]}
    with Interrupts() as interrupts:
        made = smoke.smoke(
            lab.sandbox.inventory, members, lab.remotes, interrupts, lambda what, waiting: None
        )
    (found,) = made.findings
    assert found.status == "ok", found
    assert re.search(r"over 4 ranks \(CPU\): \S+ ms, bus bandwidth \S+ GB/s, sums right", found.detail)
    assert (made.world_size, sorted(made.reports)) == (4, [0, 1, 2, 3])
    assert made.bus_bytes_per_s is not None
    assert made.bus_bytes_per_s > 0
    for host, seen in before.items():
        after = lab.sandbox.sh(host, "ls -A /root").stdout
        # Paddle makes a cache of its own, as every job does.
        assert set(after.split()) - {".cache"} == set(seen.split()) - {".cache"}
