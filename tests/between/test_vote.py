"""The odd host is named with its value, nobody else is, and groups that differ on purpose are understood."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterkit import inventory as inventories
from clusterkit.between.vote import VoteEntry, groups_of, vote
from clusterkit.facts import Facts, Output
from clusterkit.inventory.model import PortRange, Settings
from clusterkit.planning.topology import Node, Topology
from clusterkit.probes import CONTAINER, INSIDE
from clusterkit.probes.container import Container, ContainerFacts, Image, Inside, Runtime
from clusterkit.probes.paddle import Paddle
from clusterkit.steps import Fleet, judge
from clusterkit.steps.gpus.models import GpuCount, GpuModel
from tests.facts.recorded import facts

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def gpus(number: int, *, model: str = H100, driver: str = "550.90.07", count: int = 8) -> Output:
    lines = (f"{gpu}, GPU-{number:04x}-{gpu}, {model}, 81559, {driver}\n" for gpu in range(count))
    return Output(0, "".join(lines))


def python(version: str = "2.6.2", cuda: str = "11.8", nccl: str = "2.18.5", micro: int = 2) -> Output:
    paddle = {"distribution": "paddlepaddle-gpu", "version": version, "cuda": cuda, "nccl": nccl}
    answer = {"version": [3, 11, micro], "paddle": paddle, "libgomp": True, "binds": {}}
    return Output(0, f"/usr/bin/python3\n{answer!r}\n")


def host(number: int, kernel: str = "6.1.0-26-amd64", zone: str = "Etc/UTC") -> Output:
    lines = [
        *("uid=1000", "gid=1000", "user=train", "home=/home/train", f"hostname=gpu{number:03d}"),
        *(f"kernel={kernel}", "architecture=x86_64", f"machine_id={number:032x}"),
        f"zone=/usr/share/zoneinfo/{zone}",
    ]
    return Output(0, "\n".join(lines))


def network(mtu: int = 9000) -> Output:
    return Output(
        0,
        f"interface eth0 up yes {mtu} 100000\n2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0\n",
    )


def storage(options: str) -> Output:
    shown = f"612 28 0:52 / /data rw shared:350 - nfs4 nas:/data {options},rsize=1048576,clientaddr=10.0.0.2"
    return Output(0, f"0 path /data\n0 look at /data\n0 look table {shown}\n0 look done\n")


def name(number: int) -> str:
    return f"gpu{number:03d}"


def usual(number: int) -> dict[str, Any]:
    return {
        "host": host(number),
        "gpus": gpus(number),
        "python": python(),
        "network": network(),
        "storage": storage("vers=4.2,hard"),
    }


def fleet(count: int, odd: Mapping[int, Mapping[str, Output]] | None = None, **settings: Any) -> Fleet:
    """Equal hosts, except for what `odd` says."""
    found: dict[str, Facts] = {}
    for number in range(count):
        found[name(number)] = facts(name(number), **{**usual(number), **(odd or {}).get(number, {})})
    members = {alias: Settings(alias, alias, **settings) for alias in found}
    nodes = tuple(
        Node(alias, number, f"10.0.{number // 250}.{number % 250 + 1}", "eth0", (number,), None, "python3")
        for number, alias in enumerate(found)
    )
    share = PortRange(30002, 30011)
    topology = Topology(nodes, PortRange(30000, 30011), 30000, 30001, (share,) * count)
    return Fleet(members, found, topology)


def named(entries: list[VoteEntry]) -> dict[str, dict[str, str]]:
    return {entry.fact: dict(entry.odd) for entry in entries if entry.odd}


FAULTS: dict[str, tuple[str, Any, str]] = {
    "driver": ("gpus", lambda n: gpus(n, driver="535.183.01"), "535.183.01"),
    "GPU model": ("gpus", lambda n: gpus(n, model=A100), A100),
    "GPU count": ("gpus", lambda n: gpus(n, count=7), "7"),
    "Paddle": ("python", lambda n: python(version="2.6.1"), "paddlepaddle-gpu 2.6.1"),
    "CUDA": ("python", lambda n: python(cuda="12.0"), "12.0"),
    "NCCL": ("python", lambda n: python(nccl="2.19.3"), "2.19.3"),
    "Python": ("python", lambda n: python(micro=9), "3.11.9"),
    "kernel": ("host", lambda n: host(n, kernel="5.15.0"), "5.15.0"),
    "time zone": ("host", lambda n: host(n, zone="Asia/Shanghai"), "Asia/Shanghai"),
    "mounts": ("storage", lambda n: storage("rw,noac,vers=3,soft"), "/data nfs4 noac,rw,soft,vers=3"),
    "MTU": ("network", lambda n: network(1500), "1500"),
}


def test_equal_hosts_have_nobody_odd() -> None:
    entries = vote(fleet(4))
    assert named(entries) == {}
    assert all(entry.status == "ok" for entry in entries)
    majorities = {entry.fact: entry.majority for entry in entries}
    assert majorities["driver"] == "550.90.07"
    assert majorities["MTU"] == "9000"
    assert majorities["NCCL"] == "2.18.5"


@pytest.mark.parametrize("fact", FAULTS)
@pytest.mark.parametrize("odd", [0, 2, 3])
def test_the_odd_host_is_named_and_no_other(fact: str, odd: int) -> None:
    probe, make, value = FAULTS[fact]
    entries = vote(fleet(4, {odd: {probe: make(odd)}}))
    assert named(entries) == {fact: {name(odd): value}}
    (entry,) = (each for each in entries if each.odd)
    assert entry.majority not in (None, value)
    expected = {"CUDA": "failed", "NCCL": "failed", "kernel": "ok"}.get(fact, "warning")
    assert entry.status == expected


@pytest.mark.parametrize("seed", range(5))
def test_256_hosts_with_planted_faults_in_less_than_two_seconds(seed: int) -> None:
    """Precision and recall are 1: exactly the planted faults are found."""
    drawn = random.Random(seed)
    planted: dict[str, dict[str, str]] = {}
    odd: dict[int, dict[str, Output]] = {}
    hosts = drawn.sample(range(256), 40)
    for at, number in enumerate(hosts):
        fact = list(FAULTS)[at % len(FAULTS)]
        probe, make, value = FAULTS[fact]
        odd[number] = {probe: make(number)}
        planted.setdefault(fact, {})[name(number)] = value
    racks = {
        f"rack{rack:02d}": [name(number) for number in range(rack * 16, rack * 16 + 16)] for rack in range(16)
    }
    made = fleet(256, odd)
    began = time.process_time()
    entries = vote(made, racks)
    assert time.process_time() - began < 2
    assert named(entries) == planted


def test_half_and_half_is_a_tie_that_names_all() -> None:
    odd = {number: {"gpus": gpus(number, driver="535.183.01")} for number in (2, 3)}
    (entry,) = (each for each in vote(fleet(4, odd)) if each.odd)
    assert (entry.fact, entry.majority, entry.status) == ("driver", None, "warning")
    assert dict(entry.odd) == {
        name(0): "550.90.07",
        name(1): "550.90.07",
        name(2): "535.183.01",
        name(3): "535.183.01",
    }


def test_the_most_frequent_of_three_values_wins() -> None:
    odd = {1: {"gpus": gpus(1, driver="1")}, 2: {"gpus": gpus(2, driver="2")}}
    (entry,) = (each for each in vote(fleet(4, odd)) if each.odd)
    assert (entry.majority, dict(entry.odd)) == ("550.90.07", {name(1): "1", name(2): "2"})


GROUPS = {"h100": [name(number) for number in range(4)], "a100": [name(number) for number in range(4, 7)]}


def test_two_models_in_two_groups_are_expected() -> None:
    odd = {number: {"gpus": gpus(number, model=A100)} for number in range(4, 7)}
    entries = vote(fleet(7, odd), {**GROUPS, "all": [name(number) for number in range(7)]})
    assert named(entries) == {}
    (entry,) = (each for each in entries if each.fact == "GPU model")
    assert dict(entry.expected) == {"h100": H100, "a100": A100}


def test_without_groups_the_smaller_half_is_odd() -> None:
    odd = {number: {"gpus": gpus(number, model=A100)} for number in range(4, 7)}
    assert set(named(vote(fleet(7, odd)))["GPU model"]) == {name(4), name(5), name(6)}


def test_one_wrong_card_in_a_group_is_odd_although_most_hosts_have_it() -> None:
    """Five A100 against two H100: yet the host among the H100 is the wrong one."""
    model = {number: {"gpus": gpus(number, model=A100)} for number in (2, 3, 4, 5, 6)}
    groups = {"h100": [name(0), name(1), name(2)], "a100": [name(3), name(4), name(5), name(6)]}
    assert named(vote(fleet(7, model), groups)) == {"GPU model": {name(2): A100}}


@pytest.mark.parametrize("a100", [(4, 5, 6), (2, 3, 4, 5, 6), (6,), ()])
def test_the_steps_on_gpus_name_whom_the_vote_names(a100: tuple[int, ...]) -> None:
    odd = {number: {"gpus": gpus(number, model=A100, count=4)} for number in a100}
    made = replace(fleet(7, odd, driver_min="450"), groups=GROUPS)
    voted = named(vote(made, GROUPS))
    for step, key, fact in ((GpuModel(), "model", "GPU model"), (GpuCount(), "gpus", "GPU count")):
        verdicts = [judge(step, host, made) for host in made.facts]
        assert all(key in each.actual for each in verdicts)
        assert {each.host for each in verdicts if key in each.changed_keys} == set(voted.get(fact, ()))


def test_software_must_be_equal_in_all_groups() -> None:
    odd = {number: {"python": python(nccl="2.19.3")} for number in range(4, 7)}
    assert set(named(vote(fleet(7, odd), GROUPS))["NCCL"]) == {name(4), name(5), name(6)}


def test_a_tie_between_two_groups_is_expected_too() -> None:
    odd = {number: {"gpus": gpus(number, model=A100)} for number in (2, 3)}
    groups = {"one": [name(0), name(1)], "other": [name(2), name(3)]}
    assert named(vote(fleet(4, odd), groups)) == {}


def test_who_has_no_value_casts_no_vote() -> None:
    failed = Output(124, "")
    entries = vote(fleet(3, {0: {"gpus": failed}, 1: {"python": failed}}))
    assert named(entries) == {}


def test_one_host_has_nothing_to_compare() -> None:
    assert vote(fleet(1)) == []


def test_what_must_be_unique_is_named_where_it_is_not() -> None:
    entries = vote(fleet(4, {3: {"host": host(1), "gpus": gpus(1)}}))
    unique = {entry.fact: entry for entry in entries if entry.unique}
    assert set(unique) == {"host name", "machine id", "GPU UUID"}
    assert dict(unique["host name"].odd) == {name(1): "gpu001", name(3): "gpu001"}
    assert unique["machine id"].status == "warning"


def test_local_nodes_share_their_machine_on_purpose() -> None:
    entries = vote(fleet(4, {3: {"host": host(1)}}, connection="local"))
    assert not [entry for entry in entries if entry.unique]


def test_an_entry_as_json_has_the_promised_keys() -> None:
    (entry,) = (each for each in vote(fleet(4, {1: {"gpus": gpus(1, driver="535.1")}})) if each.odd)
    document = entry.as_json()
    assert {key: document[key] for key in ("fact", "majority", "odd")} == {
        "fact": "driver",
        "majority": "550.90.07",
        "odd": {name(1): "535.1"},
    }
    json.dumps(document)


def test_groups_hold_the_hosts_of_their_children(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text("[h100]\na\nb\n[a100]\nc\n[gpu:children]\nh100\na100\n")
    groups = groups_of(inventories.load(path))
    assert groups["h100"] == ("a", "b")
    assert groups["gpu"] == ("a", "b", "c")


# --- in containers ---------------------------------------------------------------------------------


def in_image(number: int, digit: str = "a", nccl: str = "2.18.5") -> Facts:
    """A host that trains in an image; its own Python is another matter."""
    image = Image(f"sha256:{digit * 64}", f"sha256:{digit * 64}", ("train:1",), "amd64", 1, "", {})
    runtime = Runtime("docker", ("docker",), "27.1", "x86_64", "/", 1, 1, "systemd", False, (), True)
    inside = Inside("python3", (3, 10, 12), Paddle("paddlepaddle-gpu", "3.0.0", "12.6", nccl))
    own = facts(name(number), **usual(number))
    container = {CONTAINER.name: ContainerFacts(runtime=runtime, image=image), INSIDE.name: Container(inside)}
    return Facts(name(number), {**own.values, **container}, own.clock)


def containers(*found: Facts) -> Fleet:
    members = {each.host: Settings(each.host, each.host, image="train:1") for each in found}
    return Fleet(members, {each.host: each for each in found}, None)


def test_the_image_and_what_is_inside_are_what_counts() -> None:
    entries = vote(containers(in_image(0), in_image(1), in_image(2, digit="b", nccl="2.19.3")))
    assert named(entries) == {"image": {name(2): "sha256:bbbbbbbbbbbb"}, "NCCL": {name(2): "2.19.3"}}
    majorities = {entry.fact: entry.majority for entry in entries}
    assert majorities["Paddle"] == "paddlepaddle-gpu 3.0.0"
    assert majorities["Python"] == "3.10.12"
    assert majorities["container runtime"] == "docker 27.1"


def test_an_image_that_does_not_start_has_no_versions_to_compare() -> None:
    dead = in_image(2)
    dead = Facts(dead.host, {**dead.values, INSIDE.name: Container(failed="no space left")}, dead.clock)
    assert named(vote(containers(in_image(0), in_image(1), dead))) == {}
