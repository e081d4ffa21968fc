"""Hosts and recorded facts become nodes: ranks, addresses, devices, ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from clusterkit.errors import NodeError, PortsTaken, TopologyError
from clusterkit.facts import Facts, Output, ProbeFailed
from clusterkit.inventory.model import PortRange, Settings
from clusterkit.planning.addresses import choose, fitting
from clusterkit.planning.topology import Assignment, arrange, arrange_able, assign
from tests.facts.recorded import facts, output

RUN = "20260101-120000-ab12"


def settings(alias: str, **fields: Any) -> Settings:
    return Settings(alias, f"{alias}.example", **fields)


def local(alias: str, **fields: Any) -> Settings:
    return Settings(alias, "127.0.0.1", connection="local", **fields)


def network(*links: str) -> Output:
    """`eth0 10.0.0.1/24 25000`, a leading `~` for a virtual interface, `-` for an unknown speed."""
    lines = ["interface lo unknown no 65536 ", "1: lo    inet 127.0.0.1/8 scope host lo"]
    for number, link in enumerate(links, 2):
        name, address, speed = link.split()
        real = "no" if name.startswith("~") else "yes"
        name = name.lstrip("~")
        lines.append(f"interface {name} up {real} 1500 {speed.strip('-')}")
        lines.append(f"{number}: {name}    inet {address} scope global {name}")
    return Output(0, "\n".join(lines))


def cluster(**links: Sequence[str]) -> tuple[list[Settings], dict[str, Facts]]:
    members = [settings(alias) for alias in links]
    return members, {alias: facts(alias, network=network(*parts)) for alias, parts in links.items()}


def ips(assigned: Assignment) -> list[str]:
    return [node.node_ip for node in assigned.nodes]


def refused(members: Sequence[Settings], found: Mapping[str, Facts], **options: Any) -> TopologyError:
    with pytest.raises(TopologyError) as failed:
        assign(members, found, **options)
    assert failed.value.hint
    assert "\n" not in failed.value.message
    return failed.value


# --- ranks and devices ----------------------------------------------------------------------------------


def test_node_ranks_follow_the_inventory_and_ranks_count_on() -> None:
    _, found = cluster(
        b=["eth0 10.0.0.2/24 25000"], a=["eth0 10.0.0.1/24 25000"], c=["eth0 10.0.0.3/24 25000"]
    )
    members = [settings("b", devices=(0, 1, 2)), settings("a", devices=(7,)), settings("c", devices=(4, 2))]
    nodes = assign(members, found).nodes
    assert [(node.alias, node.node_rank, node.ranks, node.devices) for node in nodes] == [
        ("b", 0, (0, 1, 2), (0, 1, 2)),
        ("a", 1, (3,), (7,)),
        ("c", 2, (4, 5), (4, 2)),
    ]
    assert {node.interface for node in nodes} == {"eth0"}
    assert {node.python for node in nodes} == {"/usr/bin/python3"}


def one(
    fields: dict[str, Any] | None = None, *, nproc: int | None = None, devices: Any = None, **cases: Any
) -> Any:
    node = assign(
        [settings("gpu01", **(fields or {}))],
        {"gpu01": facts("gpu01", **cases)},
        nproc_per_node=nproc,
        devices=devices,
    ).nodes[0]
    return len(node.ranks), node.devices


CPU: dict[str, Any] = {"gpus": "no-driver", "python": "paddle-cpu-3.3"}


def test_all_gpus_by_default() -> None:
    assert one() == (8, tuple(range(8)))
    assert one(gpus="one-card-missing") == (7, (0, 1, 2, 4, 5, 6, 7))


def test_the_command_line_wins() -> None:
    assert one({"devices": (0, 1)}, devices=(4, 5, 6)) == (3, (4, 5, 6))
    assert one({"devices": (0, 1, 2)}, nproc=2) == (2, (0, 1))
    assert one({"nproc_per_node": 4}, nproc=2) == (2, (0, 1))
    assert one({"nproc_per_node": 4}, devices=(3,)) == (1, (3,))
    assert one({"nproc_per_node": 4}, nproc=3, **CPU) == (3, None)


def test_ranks_on_the_cpu() -> None:
    assert one({"nproc_per_node": 2}, **CPU) == (2, None)
    assert one(nproc=5, **CPU) == (5, None)


def test_a_cpu_build_leaves_gpus_alone_and_says_so() -> None:
    found = {"gpu01": facts("gpu01", python="paddle-cpu-3.3")}
    assigned = assign([settings("gpu01", nproc_per_node=2)], found)
    assert assigned.nodes[0].devices is None
    assert assigned.notes == (
        "gpu01: its 8 GPUs stay idle, the Paddle installed there was built without CUDA",
    )


@pytest.mark.parametrize(
    ("fields", "options", "cases", "message"),
    [
        ({}, {}, CPU, "gpu01 has no GPU (there is no nvidia-smi) and nproc_per_node is not set"),
        ({"devices": (0, 8)}, {}, {}, "gpu01: devices asks for GPU 8, but the host has GPUs 0,1,2,3,4,5,6,7"),
        ({"devices": (0,)}, {}, CPU, "gpu01: devices asks for GPU 0, but the host has no GPU (there is no"),
        ({"devices": (1, 1)}, {}, {}, "gpu01: devices lists 1 twice"),
        ({"devices": ()}, {}, {}, "gpu01: devices is an empty list"),
        ({"devices": (0, 1), "nproc_per_node": 1}, {}, {}, "devices lists 2 GPUs, but nproc_per_node=1"),
        ({"devices": (0,)}, {"nproc_per_node": 2}, {}, "nproc_per_node=2, but it has only 1 GPU to use"),
        ({"nproc_per_node": 9}, {}, {}, "gpu01: nproc_per_node=9, but it has only 8 GPUs to use"),
        ({}, {"nproc_per_node": 0}, {}, "gpu01: nproc_per_node=0 starts nothing"),
        (
            {},
            {},
            {"gpus": "version-mismatch"},
            "could not be listed: nvidia-smi: Failed to initialize NVML: Driver/lib",
        ),
        ({}, {}, {"gpus": "hangs"}, "gpu01: its GPUs could not be listed: nvidia-smi: no answer within 20 s"),
    ],
)
def test_devices_that_do_not_fit(
    fields: dict[str, Any], options: dict[str, Any], cases: dict[str, str], message: str
) -> None:
    error = refused([settings("gpu01", **fields)], {"gpu01": facts("gpu01", **cases)}, **options)
    assert message in error.message


def test_local_nodes_do_not_share_a_gpu() -> None:
    members = [local("a", node_ip="127.0.0.2"), local("b", node_ip="127.0.0.3")]
    found = {"a": facts("a"), "b": facts("b")}
    assert "a and b are one machine, and both would use GPU 0" in refused(members, found).message
    apart = [local("a", devices=(0, 1)), local("b", devices=(2, 3))]
    assert [node.devices for node in assign(apart, found).nodes] == [(0, 1), (2, 3)]


# --- addresses ------------------------------------------------------------------------------------------


def test_the_only_shared_network() -> None:
    assigned = assign(
        *cluster(
            a=["eth0 192.168.1.1/24 1000", "ib0 10.0.0.1/16 -"],
            b=["eno1 10.0.7.2/16 25000", "eth0 192.168.2.1/24 1000"],
        )
    )
    assert ips(assigned) == ["10.0.0.1", "10.0.7.2"]
    assert [node.interface for node in assigned.nodes] == ["ib0", "eno1"]
    assert assigned.notes == ()


def test_the_fastest_that_is_not_virtual_said_aloud() -> None:
    assigned = assign(
        *cluster(
            a=["eth0 192.168.1.1/24 1000", "eth1 10.0.0.1/24 25000", "~wg0 10.9.0.1/24 100000"],
            b=["eth0 192.168.1.2/24 1000", "eth1 10.0.0.2/24 10000", "~wg0 10.9.0.2/24 100000"],
        )
    )
    assert ips(assigned) == ["10.0.0.1", "10.0.0.2"]
    (note,) = assigned.notes
    assert "nodes talk over 10.0.0.0/24 (eth1, 10 Gbit/s), the fastest of the networks they share" in note
    assert "not over 192.168.1.0/24 (eth0, 1 Gbit/s), 10.9.0.0/24 (wg0, 100 Gbit/s)" in note
    assert "network=" in note


def test_docker0_is_nobodys_network() -> None:
    links = {
        alias: [f"eth0 10.0.0.{number}/24 -", "~docker0 172.17.0.1/16 -"]
        for number, alias in ((1, "a"), (2, "b"))
    }
    assigned = assign(*cluster(**links))
    assert ips(assigned) == ["10.0.0.1", "10.0.0.2"]
    assert assigned.notes == ()


@pytest.mark.parametrize(("first", "second"), [("1000", "1000"), ("-", "10000"), ("-", "-")])
def test_a_tie_is_left_to_the_person(first: str, second: str) -> None:
    members, found = cluster(
        a=[f"eth0 192.168.1.1/24 {first}", f"eth1 10.0.0.1/24 {second}"],
        b=[f"eth0 192.168.1.2/24 {first}", f"eth1 10.0.0.2/24 {second}"],
    )
    error = refused(members, found)
    assert "192.168.1.0/24 (eth0" in error.message
    assert "10.0.0.0/24 (eth1" in error.message
    assert "network=192.168.1.0/24" in error.hint


def test_a_speed_that_one_host_does_not_know_decides_nothing() -> None:
    members, found = cluster(
        a=["eth0 192.168.1.1/24 1000", "eth1 10.0.0.1/24 25000"],
        b=["eth0 192.168.1.2/24 1000", "eth1 10.0.0.2/24 -"],
    )
    assert "10.0.0.0/24 (eth1, speed not known)" in refused(members, found).message


def test_nothing_shared() -> None:
    members, found = cluster(
        a=["eth0 10.0.0.1/24 -", "eth1 10.1.0.1/24 -"], b=["eth0 10.2.0.1/24 -", "eth1 10.3.0.1/24 -"]
    )
    error = refused(members, found)
    assert "a has 10.0.0.1/24 (eth0), 10.1.0.1/24 (eth1); b has 10.2.0.1/24 (eth0)" in error.message


def test_clouds_that_give_each_host_a_network_of_its_own() -> None:
    assigned = assign(
        *cluster(a=["eth0 10.0.0.1/32 -"], b=["eth0 10.0.0.2/32 -", "~docker0 172.17.0.1/16 -"])
    )
    assert ips(assigned) == ["10.0.0.1", "10.0.0.2"]
    assert "each node uses its only address: a 10.0.0.1, b 10.0.0.2" in assigned.notes[0]


def test_a_host_without_any_address() -> None:
    members, found = cluster(a=["eth0 10.0.0.1/24 -"], b=[])
    assert (
        "b: no IPv4 address that other nodes could reach; it has 127.0.0.1/8 (lo)"
        in refused(members, found).message
    )


def test_one_node_has_nobody_to_talk_to() -> None:
    assert ips(
        assign(*cluster(a=["~docker0 172.17.0.1/16 -", "eth0 10.0.0.1/24 -", "eth1 10.1.0.1/24 -"]))
    ) == ["10.0.0.1"]


def test_interfaces_that_are_down_do_not_count() -> None:
    found = facts("a", network="bond-vlan-docker-tunnel")
    other = network("bond0 10.10.0.22/20 50000", "~docker0 172.17.0.2/16 -", "eno1 192.168.7.22/24 1000")
    assigned = assign([settings("a"), settings("b")], {"a": found, "b": facts("b", network=other)})
    assert ips(assigned) == ["10.10.0.21", "10.10.0.22"]


def test_the_word_of_the_inventory() -> None:
    many = ["eth0 192.168.1.1/24 1000", "eth1 10.0.0.1/24 25000", "eth2 10.0.1.1/24 25000"]
    _, found = cluster(a=many)
    for fields, ip in (
        ({"node_ip": "192.168.1.1"}, "192.168.1.1"),
        ({"network": "10.0.1.0/24"}, "10.0.1.1"),
        ({"network": "192.168.0.0/16"}, "192.168.1.1"),
        ({"interface": "eth1"}, "10.0.0.1"),
    ):
        assert ips(assign([settings("a", **fields)], found)) == [ip]


def test_a_further_address_of_the_interface_is_no_choice() -> None:
    found = {"a": facts("a", network="bond-vlan-docker-tunnel")}
    assert ips(assign([settings("a", interface="eno1")], found)) == ["192.168.7.21"]


def test_hosts_without_a_word_join_the_network_of_those_with_one() -> None:
    members, found = cluster(
        a=["eth0 192.168.1.1/24 1000", "eth1 10.0.0.1/24 1000"],
        b=["eth0 192.168.1.2/24 1000", "eth1 10.0.0.2/24 1000"],
    )
    assert ips(assign([settings("a", network="10.0.0.0/24"), members[1]], found)) == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"node_ip": "10.0.0.99"},
            "node_ip=10.0.0.99 is not an address of this host, which has 127.0.0.1/8 (lo), 10",
        ),
        ({"node_ip": "gpu01.example"}, "node_ip=gpu01.example is not an IPv4 address"),
        ({"node_ip": "fe80::1"}, "node_ip=fe80::1 is not an IPv4 address"),
        ({"network": "10.9.0.0/24"}, "network=10.9.0.0/24 fits no address of this host"),
        ({"network": "ten"}, "network=ten is not an IPv4 network"),
        (
            {"network": "10.0.0.0/8"},
            "network=10.0.0.0/8 fits several addresses: 10.0.0.1/24 (eth0), 10.0.1.1/24",
        ),
        ({"interface": "eth9"}, "interface=eth9 fits no address of this host"),
    ],
)
def test_a_word_that_does_not_fit(fields: dict[str, Any], message: str) -> None:
    _, found = cluster(gpu01=["eth0 10.0.0.1/24 -", "eth1 10.0.1.1/24 -"])
    assert message in refused([settings("gpu01", **fields)], found).message


def test_two_nodes_with_one_address() -> None:
    _, found = cluster(a=["eth0 10.0.0.1/24 -"], b=["eth0 10.0.0.1/24 -"])
    members = [settings("a", interface="eth0"), settings("b", interface="eth0")]
    assert "a and b have the same node address 10.0.0.1" in refused(members, found).message


def test_loopback_only_among_local_nodes() -> None:
    found = {"a": facts("a", **CPU), "b": facts("b", **CPU)}
    both = [
        local("a", node_ip="127.0.0.2", nproc_per_node=2),
        local("b", node_ip="127.0.0.3", nproc_per_node=1),
    ]
    assigned = assign(both, found)
    assert ips(assigned) == ["127.0.0.2", "127.0.0.3"]
    assert {node.interface for node in assigned.nodes} == {"lo"}
    mixed = [both[0], settings("b", node_ip="10.0.0.1", nproc_per_node=1)]
    assert "a: 127.0.0.2 is loopback, which b cannot reach" in refused(mixed, found).message


def test_local_nodes_without_a_word() -> None:
    found = {alias: facts(alias, **CPU) for alias in ("a", "b", "c")}
    members = [local(alias, nproc_per_node=1) for alias in found]
    assert ips(assign(members[:1], found)) == ["127.0.0.1"]
    assert len(set(ips(assign(members, found)))) == 3
    assert all(ip.startswith("127.0.0.") for ip in ips(assign(members, found)))


def test_without_network_facts_nothing_is_guessed() -> None:
    with pytest.raises(ProbeFailed) as failed:
        assign([settings("a")], {"a": facts("a", network=Output(124, ""))})
    assert failed.value.host == "a"


# --- the whole ------------------------------------------------------------------------------------------


def test_a_whole_topology() -> None:
    members = [
        local("a", node_ip="127.0.0.2", nproc_per_node=2),
        local("b", node_ip="127.0.0.3", nproc_per_node=2),
    ]
    found = {"a": facts("a", **CPU), "b": facts("b", **CPU)}
    topology = arrange(members, found, RUN).topology
    assert topology.world_size == 4
    first, second = topology.launcher_ports
    assert first.last < second.first
    assert topology.channel_port in topology.port_window
    assert topology.master_port in topology.port_window


def test_hosts_with_machine_ids_of_their_own_use_the_same_ports() -> None:
    _, found = cluster(a=["eth0 10.0.0.1/24 -"], b=["eth0 10.0.0.2/24 -"])
    other = facts("b", network=network("eth0 10.0.0.2/24 -"), host="gpu02")
    members = [settings("a"), settings("b")]
    shares = arrange(members, {"a": found["a"], "b": other}, RUN).topology.launcher_ports
    assert shares[0] == shares[1]
    cloned = arrange(members, found, RUN).topology.launcher_ports
    assert cloned[0].last < cloned[1].first


def test_the_window_avoids_a_live_run_and_a_listener() -> None:
    found = {"a": facts("a", runs="live-on-gpus", listening="own-jupyter")}
    member = settings("a", port_range=PortRange(30090, 30160))
    window = arrange([member], found, RUN).topology.port_window
    assert window.first > 30119


def test_a_window_as_if_nothing_were_in_use_shows_who_is_in_the_way() -> None:
    found = {"a": facts("a", runs="live-on-gpus", listening="own-jupyter")}
    member = settings("a", port_range=PortRange(30090, 30119))
    with pytest.raises(PortsTaken):
        arrange([member], found, RUN)
    window = arrange([member], found, RUN, in_use=False).topology.port_window
    assert 30090 <= window.first < window.last <= 30119


def test_a_host_without_a_fitting_address_is_named_and_left_out() -> None:
    members, found = cluster(
        a=["eth0 10.0.0.1/24 -"], b=["eth0 10.0.0.2/24 -"], c=["eth0 10.0.0.3/24 -"], d=[]
    )
    members[1] = settings("b", node_ip="10.0.0.9")
    members[3] = settings("d", network="10.0.0.0/24")
    with pytest.raises(NodeError) as failed:
        choose(members, found)
    assert failed.value.host == "b"
    assert {alias: each.ip for alias, each in fitting(members, found).items()} == {
        "a": "10.0.0.1",
        "c": "10.0.0.3",
    }


def test_one_address_of_two_hosts_leaves_nobody_out() -> None:
    members, found = cluster(a=["eth0 10.0.0.1/24 -"], b=["eth0 10.0.0.1/24 -"])
    members = [settings(each.alias, node_ip="10.0.0.1") for each in members]
    with pytest.raises(TopologyError, match="a and b have the same node address"):
        fitting(members, found)


# --- without those that cannot take part ---------------------------------------------------------------


def test_hosts_that_cannot_take_part_keep_nobody_from_being_planned() -> None:
    members, found = cluster(
        **{f"gpu0{number}": [f"eth0 10.0.0.{number}/24 25000"] for number in range(1, 6)}
    )
    members[1] = settings("gpu02", node_ip="10.9.9.9")
    members[2] = settings("gpu03", devices=(0, 9))
    hung = output("gpus", "hangs")
    found["gpu04"] = facts("gpu04", network=network("eth0 10.0.0.4/24 25000"), gpus=hung)
    found["gpu05"] = facts("gpu05", network=network("eth0 10.0.0.5/24 25000"), kernel=Output(1, ""))
    arranged, unable = arrange_able(members, found, RUN)
    assert arranged is not None
    assert arranged == arrange(members[:1], found, RUN)
    assert {host: (error.message, bool(error.hint)) for host, error in unable.items()} == {
        "gpu02": (
            "node_ip=10.9.9.9 is not an address of this host, which has 127.0.0.1/8 (lo), 10.0.0.2/24 (eth0)",
            True,
        ),
        "gpu03": ("devices asks for GPU 9, but the host has GPUs 0,1,2,3,4,5,6,7", True),
        "gpu04": ("its GPUs could not be listed: nvidia-smi: no answer within 20 s", True),
        "gpu05": ("kernel settings: exit status 1", True),
    }


def test_without_a_host_that_can_there_is_no_plan() -> None:
    members, found = cluster(gpu01=["eth0 10.0.0.1/24 25000"])
    arranged, unable = arrange_able([settings("gpu01", node_ip="10.9.9.9")], found, RUN)
    assert (arranged, list(unable)) == (None, ["gpu01"])
    assert arrange_able(members, found, RUN) == (arrange(members, found, RUN), {})


def test_hosts_that_do_not_fit_together_are_refused_as_ever() -> None:
    members, found = cluster(gpu01=["eth0 10.0.0.1/24 25000"], gpu02=["eth0 10.0.0.1/24 25000"])
    same = [settings(each.alias, node_ip="10.0.0.1") for each in members]
    with pytest.raises(TopologyError, match="have the same node address"):
        arrange_able(same, found, RUN)
