"""Packets through rules, whole sets at once: the same as each packet alone; and what follows for a host."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterkit.facts import NEEDS_ROOT, Output
from clusterkit.inventory.model import PortRange
from clusterkit.probes.firewall import FIREWALL, FirewallFacts, iptables, nft
from clusterkit.probes.firewall.rules import Chain, Condition, Rule, Table, Verdict
from clusterkit.steps import judge
from clusterkit.steps.firewall import Firewall, FirewallAtBoot, FirewallOut, files
from clusterkit.steps.firewall.nodes import find
from clusterkit.steps.firewall.regions import ALL_PORTS, Box, port_bits, port_ranges, within, without
from clusterkit.steps.firewall.traverse import Dropped, Flow, dropped
from tests.facts.recorded import output
from tests.steps.fleets import fleet

PEERS = tuple(int(IPv4Address("10.0.0.1")) + number for number in range(4))
OWN = int(IPv4Address("10.0.0.9"))


def number(address: str) -> int:
    return int(IPv4Address(address))


def flow(**changes: Any) -> Flow:
    usual: dict[str, Any] = {
        "others": PEERS,
        "ports": port_bits([(30000, 65535)]),
        "own": (OWN,),
        "interfaces": frozenset({"eth0"}),
    }
    return Flow(**{**usual, **changes})


# --- sets of packets -----------------------------------------------------------------------------------

boxes = st.builds(Box, st.integers(0, 15), st.integers(0, 255))


def packets(region: Sequence[Box]) -> list[tuple[int, int]]:
    return [
        (node, port)
        for box in region
        for node in range(4)
        for port in range(8)
        if box.nodes >> node & 1 and box.ports >> port & 1
    ]


@given(st.lists(boxes, max_size=3), boxes)
def test_a_region_is_cut_in_two(region: list[Box], box: Box) -> None:
    inside, outside = within(tuple(region), box), without(tuple(region), box)
    assert sorted(packets(inside) + packets(outside)) == sorted(packets(region))
    assert set(packets(inside)) <= set(packets([box]))
    assert not set(packets(outside)) & set(packets([box]))


@given(st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 65535))))
def test_ports_survive_the_way_through_bits(ranges: list[tuple[int, int]]) -> None:
    bits = port_bits(ranges)
    assert port_bits((each.first, each.last) for each in port_ranges(bits)) == bits
    assert bits <= ALL_PORTS


# --- rules ---------------------------------------------------------------------------------------------

tests_of_a_rule = st.one_of(
    st.builds(
        lambda first, last, negated: Condition(
            "source", ((min(first, last), max(first, last)),), (), negated
        ),
        st.sampled_from(PEERS),
        st.sampled_from(PEERS),
        st.booleans(),
    ),
    st.builds(
        lambda first, last, negated: Condition("destination port", ((first, last),), (), negated),
        st.sampled_from([0, 30000, 40000]),
        st.sampled_from([30000, 45000, 65535]),
        st.booleans(),
    ),
    st.builds(
        lambda name, negated: Condition("in", (), (name,), negated),
        st.sampled_from(["eth*", "lo"]),
        st.booleans(),
    ),
)
verdicts = st.one_of(
    st.sampled_from([Verdict("accept"), Verdict("drop"), Verdict("return")]),
    st.builds(Verdict, st.sampled_from(["jump", "goto"]), st.sampled_from(["b", "c"])),
)
rules = st.lists(st.builds(Rule, st.lists(tests_of_a_rule, max_size=2).map(tuple), verdicts), max_size=5).map(
    tuple
)


def one_packet(chains: dict[str, Chain], name: str, source: int, port: int) -> str:
    """accept, drop, or "" for the end of the chain: as the kernel does it, rule by rule."""
    for rule in chains[name].rules:
        if not all(passes(test, source, port) for test in rule.conditions):
            continue
        kind = rule.verdict.kind
        if kind in ("accept", "drop"):
            return kind
        if kind == "return":
            return ""
        decided = one_packet(chains, rule.verdict.target, source, port)
        if decided or kind == "goto":
            return decided
    return ""


def passes(test: Condition, source: int, port: int) -> bool:
    if test.field == "in":
        held = test.names == ("eth*",)
    else:
        value = source if test.field == "source" else port
        held = any(first <= value <= last for first, last in test.ranges)
    return held != test.negated


@settings(max_examples=300, deadline=None)
@given(rules, rules, rules, st.sampled_from(["accept", "drop"]))
def test_a_set_of_packets_fares_as_each_of_them(
    first: tuple[Rule, ...], second: tuple[Rule, ...], third: tuple[Rule, ...], policy: Any
) -> None:
    # A chain jumps only to later ones: the kernel knows no circles.
    second = tuple(each for each in second if each.verdict.target != "b")
    third = tuple(each for each in third if not each.verdict.target)
    chains = {
        "a": Chain("a", first, "input", 0, policy),
        "b": Chain("b", second),
        "c": Chain("c", third),
    }
    facts = FirewallFacts((Table("nft", "inet", "t", "nft", chains),))
    found = dropped(facts, flow())
    assert all(each.certain for each in found)
    for position, source in enumerate(PEERS):
        for port in (30000, 39999, 40000, 45000, 45001, 65535):
            alone = one_packet(chains, "a", source, port) or policy
            together = any(each.box.nodes >> position & 1 and each.box.ports >> port & 1 for each in found)
            assert together == (alone == "drop")


def saved(*lines: str, policy: str = "DROP", chains: Sequence[str] = ()) -> FirewallFacts:
    declared = [f":INPUT {policy} [0:0]", ":OUTPUT ACCEPT [0:0]", *(f":{name} - [0:0]" for name in chains)]
    text = "\n".join(["*filter", *declared, *lines, "COMMIT"])
    return FirewallFacts(
        iptables.tables(text, "iptables-nft", "iptables", {"nodes": ((PEERS[0], PEERS[1]),)})
    )


def open_to(facts: FirewallFacts, one: Flow | None = None) -> list[str]:
    """The peers that get through on all ports."""
    one = one or flow()
    closed = 0
    for each in dropped(facts, one):
        closed |= each.box.nodes
    return [str(IPv4Address(peer)) for position, peer in enumerate(one.others) if not closed >> position & 1]


ALL = [str(IPv4Address(peer)) for peer in PEERS]


@pytest.mark.parametrize(
    ("rule", "peers"),
    [
        ("-j ACCEPT", ALL),
        ("-s 10.0.0.1/32 -j ACCEPT", ALL[:1]),
        ("! -s 10.0.0.1/32 -j ACCEPT", ALL[1:]),
        ("-s 10.0.0.0/255.255.255.254 -j ACCEPT", ALL[:1]),
        ("-m iprange --src-range 10.0.0.2-10.0.0.3 -j ACCEPT", ALL[1:3]),
        ("-m set --match-set nodes src -j ACCEPT", ALL[:2]),
        ("-m set --match-set others src -j ACCEPT", []),
        ("-d 10.0.0.9/32 -j ACCEPT", ALL),
        ("-d 10.0.0.8/32 -j ACCEPT", []),
        ("-i eth0 -j ACCEPT", ALL),
        ("-i e+ -j ACCEPT", ALL),
        ("! -i lo -j ACCEPT", ALL),
        ("-i lo -j ACCEPT", []),
        ("-p tcp -j ACCEPT", ALL),
        ("-p udp -j ACCEPT", []),
        ("! -p tcp -j ACCEPT", []),
        ("-p icmp -m icmp --icmp-type 8 -j ACCEPT", []),
        ("-p tcp -m tcp --dport 1024:65535 -j ACCEPT", ALL),
        ("-p tcp -m tcp --dport 30000 -j ACCEPT", []),
        ("-p tcp -m tcp ! --dport 22 -j ACCEPT", ALL),
        ("-p tcp -m multiport --dports 30000:50000,50001:65535 -j ACCEPT", ALL),
        ("-p tcp -m tcp --sport 1024:65535 -j ACCEPT", ALL),
        ("-p tcp -m tcp --sport 20000:65535 -j ACCEPT", []),
        ("-m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT", ALL),
        ("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", []),
        ("-m conntrack ! --ctstate INVALID -j ACCEPT", ALL),
        ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT", ALL),
        ("-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT", []),
        ("-m addrtype --dst-type LOCAL -j ACCEPT", ALL),
        ("-m addrtype ! --dst-type LOCAL -j ACCEPT", []),
        ("-m addrtype --dst-type BROADCAST -j ACCEPT", []),
        ("-m mark --mark 0x8000/0x8000 -j ACCEPT", []),
        ("-m pkttype --pkt-type unicast -j ACCEPT", ALL),
        ("-m limit --limit 3/min -j ACCEPT", []),
        ("-m physdev ! --physdev-is-bridged -j ACCEPT", []),
        ('-m comment --comment "a person\'s \\"word\\" -j DROP" -j ACCEPT', ALL),
        ("-j LOG --log-prefix DROP", []),
        ("-j MARK --set-xmark 0x1/0xffffffff", []),
    ],
)
def test_words_of_iptables(rule: str, peers: list[str]) -> None:
    assert open_to(saved(f"-A INPUT {rule}")) == peers


def test_what_may_drop_counts_as_closed_and_says_that_it_is_not_sure() -> None:
    (found,) = dropped(saved("-A INPUT -m limit --limit 3/min -j DROP", policy="ACCEPT"), flow())
    assert not found.certain
    assert str(found) == "iptables -A INPUT -m limit --limit 3/min -j DROP"


def test_an_accept_that_may_not_be_reached_does_not_count() -> None:
    facts = saved(
        "-A INPUT -m limit --limit 3/min -j sometimes", "-A sometimes -j ACCEPT", chains=["sometimes"]
    )
    assert open_to(facts) == []


def test_an_uncertain_return_goes_both_ways() -> None:
    facts = saved("-A INPUT -j a", "-A a -m limit --limit 3/min -j RETURN", "-A a -j ACCEPT", chains=["a"])
    assert open_to(facts) == []


def test_the_way_out_has_its_own_chain() -> None:
    facts = saved("-A OUTPUT -d 10.0.0.2/32 -o eth0 -j REJECT", policy="ACCEPT")
    assert open_to(facts) == ALL
    assert open_to(facts, flow(outgoing=True)) == [ALL[0], *ALL[2:]]


def test_circles_end() -> None:
    facts = saved("-A INPUT -j a", "-A a -j a", chains=["a"])
    assert open_to(facts) == []


def native(*rules: str | dict[str, Any], policy: str = "drop", sets: Sequence[Any] = ()) -> FirewallFacts:
    """`inet filter input` with these expressions of nft."""
    place = {"family": "inet", "table": "filter"}
    entries: list[Any] = [{"table": {"family": "inet", "name": "filter", "handle": 1}}]
    base = {"name": "input", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": policy}
    entries += [{"set": {**place, **each}} for each in sets]
    entries.append({"chain": {**place, **base}})
    for handle, each in enumerate(rules, 2):
        entries.append({"rule": {**place, "chain": "input", "handle": handle, "expr": each}})
    return FirewallFacts(nft.tables([json.dumps({"nftables": entries})]))


def compare(left: Any, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": left, "right": right}}


def payload(protocol: str, name: str) -> dict[str, Any]:
    return {"payload": {"protocol": protocol, "field": name}}


SADDR, DPORT = payload("ip", "saddr"), payload("tcp", "dport")
TWO = {"prefix": {"addr": "10.0.0.2", "len": 31}}


@pytest.mark.parametrize(
    ("tests", "peers"),
    [
        ([], ALL),
        ([compare(SADDR, "10.0.0.1")], ALL[:1]),
        ([compare(SADDR, TWO)], ALL[1:3]),
        ([compare(SADDR, TWO, "!=")], [ALL[0], ALL[3]]),
        ([compare(SADDR, {"set": ["10.0.0.1", {"range": ["10.0.0.3", "10.0.0.9"]}]})], [ALL[0], *ALL[2:]]),
        ([compare(SADDR, "@known")], ALL[:1]),
        ([compare(SADDR, "@left out")], []),
        ([compare(SADDR, "@empty")], []),
        ([compare(DPORT, {"range": [1024, 65535]})], ALL),
        ([compare(DPORT, 1024, ">=")], ALL),
        ([compare(DPORT, 30000, ">")], []),
        ([compare(payload("th", "dport"), {"set": [22, {"range": [30000, 65535]}]})], ALL),
        ([compare(payload("udp", "dport"), 53)], []),
        ([compare(payload("ip6", "saddr"), "fe80::1", "!=")], []),
        ([compare({"meta": {"key": "iifname"}}, "eth*")], ALL),
        ([compare({"meta": {"key": "iif"}}, "lo")], []),
        ([compare({"meta": {"key": "l4proto"}}, {"set": ["tcp", "udp"]})], ALL),
        ([compare({"meta": {"key": "nfproto"}}, "ipv6")], []),
        ([compare({"meta": {"key": "mark"}}, 1)], []),
        ([compare({"ct": {"key": "state"}}, ["established", "related"], "in")], []),
        ([compare({"ct": {"key": "state"}}, "invalid", "!=")], ALL),
        ([compare({"ct": {"key": "status"}}, "dnat", "in")], []),
        ([compare({"fib": {"result": "type", "flags": ["daddr"]}}, "local")], ALL),
        ([compare({"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, False)], []),
        ([compare({"&": [payload("tcp", "flags"), ["fin", "syn", "rst", "ack"]]}, "syn")], ALL),
        ([compare({"&": [payload("tcp", "flags"), ["fin", "syn"]]}, "syn", "!=")], []),
        ([{"limit": {"rate": 10, "per": "second"}}], []),
        ([{"xt": {"type": "match", "name": "recent"}}], []),
        ([{"counter": {"packets": 1, "bytes": 1}}, {"log": None}], ALL),
        ([compare({"payload": {"base": "th", "offset": 16, "len": 16}}, 30000)], []),
        (
            [compare({"concat": [SADDR, DPORT]}, {"set": [{"concat": ["10.0.0.1", {"range": [1, 65535]}]}]})],
            ALL[:1],
        ),
    ],
)
def test_words_of_nft(tests: list[Any], peers: list[str]) -> None:
    sets = [
        {
            "name": "known",
            "type": "ipv4_addr",
            "handle": 7,
            "elem": [{"elem": {"val": "10.0.0.1", "timeout": 60}}],
        },
        {"name": "left out", "type": "ipv4_addr", "handle": 8},
        {"name": "empty", "type": "ipv4_addr", "handle": 9, "elem": []},
    ]
    facts = native([*tests, {"accept": None}], sets=sets)  # type: ignore[arg-type]
    assert open_to(facts) == peers


def test_verdicts_by_a_map() -> None:
    by_source = {
        "vmap": {"key": SADDR, "data": {"set": [["10.0.0.1", {"drop": None}], [TWO, {"accept": None}]]}}
    }
    assert open_to(native([by_source])) == ALL[1:3]  # type: ignore[arg-type]
    assert open_to(native([by_source], policy="accept")) == ALL[1:]  # type: ignore[arg-type]


def test_an_accept_in_one_base_chain_does_not_overrule_another() -> None:
    accepting, denying = native([{"accept": None}]), native()  # type: ignore[arg-type]
    assert open_to(FirewallFacts((*accepting.tables, *denying.tables))) == []


# --- one host ------------------------------------------------------------------------------------------


def two(first: str | Output, **settings: Any) -> dict[str, Any]:
    return {
        "hosts": {
            "gpu01": {"facts": {"firewall": first}, "settings": settings},
            "gpu02": {"facts": {"network": "second-node"}},
        }
    }


def test_rules_that_cannot_be_read_are_unknown_once() -> None:
    found = fleet(two(Output(NEEDS_ROOT, "")))
    first = judge(Firewall(), "gpu01", found)
    assert (first.status, first.message) == ("unknown", "firewall rules: only root can read this")
    assert "ansible_become=true" in first.hint
    assert [judge(step, "gpu01", found).status for step in (FirewallAtBoot(), FirewallOut())] == [
        "skipped"
    ] * 2


def test_a_host_that_does_not_answer_keeps_what_may_be_its_own() -> None:
    case = two("ufw-open-to-one-too-many")
    everybody = fleet(case)
    assert judge(Firewall(), "gpu01", everybody).actual["stale"] == ["30000-65535 from 10.0.0.9/32"]
    one_more = fleet({"hosts": {**case["hosts"], "gpu03": {"settings": {"node_ip": "10.0.0.3"}}}})
    silent = type(one_more)(
        one_more.members, {host: one_more.facts[host] for host in ("gpu01", "gpu02")}, everybody.topology
    )
    found = judge(Firewall(), "gpu01", silent)
    assert found.actual["stale"] == []
    assert found.actual["closed"] == ["30000-65535 from 10.0.0.3"]
    assert "ufw allow proto tcp from 10.0.0.2/31 to any port 30000:65535 comment clusterkit" in found.fix
    assert not any("10.0.0.9" in line and "delete" in line for line in found.fix)


def test_the_ephemeral_range_is_opened_beside_a_narrow_port_range() -> None:
    found = judge(Firewall(), "gpu01", fleet(two("iptables-nft-drop", port_range=PortRange(20000, 20999))))
    assert found.actual["closed"] == ["20000-20999, 32768-60999 from all other nodes"]
    text = "\n".join(found.fix)
    assert "--dport 20000:20999" in text
    assert "--dport 32768:60999" in text


def test_ports_that_are_not_needed_any_more_are_closed() -> None:
    found = judge(Firewall(), "gpu01", fleet(two("ufw-open", port_range=PortRange(30000, 31000))))
    assert found.actual["stale"] == [f"30000-65535 from 10.0.0.{number}/32" for number in (1, 2)]
    assert "ufw allow proto tcp from 10.0.0.2/32 to any port 30000:31000 comment clusterkit" in found.fix
    assert "ufw delete allow proto tcp from 10.0.0.2/32 to any port 30000:65535" in found.fix


def test_further_addresses_and_interfaces_of_a_node() -> None:
    recorded = output("network", "second-node").stdout
    more = recorded.replace(
        "2: enp1s0f0",
        "2: enp1s0f0    inet 10.0.0.77/24 scope global secondary enp1s0f0\n"
        "3: ib0    inet 10.9.0.2/16 scope global ib0\n"
        "4: docker0    inet 172.17.0.1/16 scope global docker0\n2: enp1s0f0",
        1,
    ).replace("interface lo", "interface ib0 up yes 4092 \ninterface docker0 up no 1500 \ninterface lo")
    case = two("iptables-nft-drop")
    case["hosts"]["gpu02"] = {"facts": {"network": Output(0, more)}}
    case["hosts"]["gpu02"]["settings"] = {"env": {"NCCL_SOCKET_IFNAME": "=ib0,^lo"}}
    ends = find(fleet(case)).ends["gpu02"]
    assert ends.interfaces == {"enp1s0f0", "ib0"}
    assert ends.addresses == tuple(map(number, ("10.0.0.2", "10.0.0.77", "10.9.0.2")))


def test_an_old_firewalld_is_left_to_a_person() -> None:
    recorded = output("firewall", "firewalld-public")
    found = judge(Firewall(), "gpu01", fleet(two(Output(0, recorded.stdout.replace("\npolicies\n", "\n")))))
    assert (found.status, found.fix) == ("manual", ())
    assert "0.9" in found.hint


def test_a_start_on_a_part_of_the_inventory_speaks_of_what_it_needs_alone() -> None:
    """The rule for 10.0.0.9 may be for a host that `--limit` leaves out; 10.0.0.3 is shut out."""
    case = two("ufw-open-to-one-too-many")
    third = output("network", "second-node").stdout.replace("10.0.0.2/", "10.0.0.3/")
    case["hosts"]["gpu03"] = {"facts": {"network": Output(0, third)}}
    found = judge(Firewall(), "gpu01", fleet({**case, "starting": True}))
    assert found.status == "pending"
    assert found.actual == {"decided_by": "ufw over iptables-nft", "closed": ["30000-65535 from 10.0.0.3"]}
    assert found.message == "TCP 30000-65535 from nodes is dropped by `iptables-nft -P INPUT DROP`"
    whole = judge(Firewall(), "gpu01", fleet(case))
    assert whole.message.endswith("; still open, though no node needs it: 30000-65535 from 10.0.0.9/32")


def test_256_hosts_are_judged_in_time() -> None:
    plain = output("network", "second-node").stdout
    hosts: dict[str, Any] = {}
    for host in range(256):
        # No two addresses lie side by side: a rule for each.
        address = f"10.0.{host // 100}.{2 * (host % 100) + 1}"
        network = Output(0, plain.replace("10.0.0.2/24", f"{address}/16"))
        hosts[f"gpu{host:03}"] = {"facts": {"network": network, "firewall": "firewalld-public"}}
    found = fleet({"hosts": hosts, "planned": False})
    _ = [facts[FIREWALL] for facts in found.facts.values()]
    begun = time.process_time()
    verdicts = [
        judge(step, host, found)
        for host in found.members
        for step in (Firewall(), FirewallAtBoot(), FirewallOut())
    ]
    took = time.process_time() - begun
    assert {each.status for each in verdicts if each.name == "firewall"} == {"pending"}
    # The shell that runs a step's lines gets them as one word, which Linux limits to 128 kB.
    assert max(len("\n".join(each.fix)) for each in verdicts) < 100_000
    assert took < 4.0, f"{took:.1f} s"


# --- files ---------------------------------------------------------------------------------------------

LINE = 'include "/etc/clusterkit.nft"'


def sh(lines: Sequence[str]) -> None:
    subprocess.run(["sh", "-euc", "\n".join(lines)], check=True, timeout=20)


@pytest.mark.parametrize("text", ["flush ruleset\n", "flush ruleset", "a\n\n\n", "", "\n", "a\n\nb"])
def test_a_line_is_appended_once_and_taken_back_byte_for_byte(text: str, tmp_path: Path) -> None:
    file = tmp_path / "nftables conf"
    file.write_text(text)
    file.chmod(0o700)
    for _ in range(2):
        sh(files.append_line(str(file), LINE))
        assert file.read_text().splitlines().count(LINE) == 1
        assert file.read_text().endswith(f"{LINE}\n")
        assert file.read_text().startswith(text)
    sh(files.remove_line(str(file), LINE))
    assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o700


SAVED = """# Generated by iptables-save
*nat
:PREROUTING ACCEPT [0:0]
COMMIT
*filter
:INPUT DROP [0:0]
-A INPUT -i lo -j ACCEPT
COMMIT
*mangle
COMMIT
"""


def test_a_block_goes_into_the_filter_table_and_out_again(tmp_path: Path) -> None:
    file = tmp_path / "rules.v4"
    file.write_text(SAVED)
    block = [":clusterkit - [0:0]", "-I INPUT 1 -m comment --comment clusterkit -j clusterkit"]
    for _ in range(2):
        sh(files.replace_block(str(file), block))
        expected = SAVED.replace("-i lo -j ACCEPT\n", "-i lo -j ACCEPT\n" + "\n".join(block) + "\n")
        assert file.read_text() == expected
    sh(files.replace_block(str(file), []))
    assert file.read_text() == SAVED


def test_how_a_rule_is_named() -> None:
    chain = Chain("INPUT", (), "input", 0, "drop")
    box = Box(1, 1)
    old = Table("iptables-legacy", "ip", "filter", "iptables-legacy", {})
    new = Table("nft", "inet", "filter", "nft", {})
    rule = Rule((), Verdict("reject"), "inet filter INPUT handle 7")
    assert str(Dropped(box, old, chain, None, "INPUT")) == "iptables-legacy -P INPUT DROP"
    assert str(Dropped(box, new, chain, None, "INPUT")) == "nft inet filter INPUT, policy drop"
    assert str(Dropped(box, new, chain, rule, "INPUT")) == "nft inet filter INPUT handle 7"
    assert Dropped(box, new, chain, rule, "INPUT").rejects
