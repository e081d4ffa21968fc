"""What is said of the environments: once for all hosts that share it, and never a value."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from clusterkit.inventory.model import Secret
from clusterkit.planning.environment import Environment
from clusterkit.planning.plan import NodePlan
from clusterkit.report import environment

OURS = {"NCCL_SOCKET_IFNAME": "=eth1", "GLOO_SOCKET_IFNAME": "eth1"}


def nodes(*environments: Environment, interfaces: Sequence[str] = ("eth1", "eth1")) -> list[NodePlan]:
    """Nodes gpu1, gpu2, … with these environments."""
    made = [
        SimpleNamespace(alias=f"gpu{number}", environment=each, node=SimpleNamespace(interface=interface))
        for number, (each, interface) in enumerate(zip(environments, interfaces, strict=True), 1)
    ]
    return cast(list[NodePlan], made)


def test_equal_hosts_share_a_line() -> None:
    one = Environment((), OURS, {}, {"HTTP_PROXY": "catches all", "https_proxy": "catches all"}, frozenset())
    other = Environment((), OURS, {}, {**one.removed, "POD_IP": "overrides --host"}, frozenset())
    assert environment.lines(nodes(one, other)) == [
        "kept HTTP_PROXY, https_proxy of gpu[1-2] out of the job: catches all",
        "kept POD_IP of gpu2 out of the job: overrides --host",
        "set NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME to eth1 on gpu[1-2]",
    ]


def test_interfaces_may_differ_and_the_users_own_choice_is_not_ours() -> None:
    ours = Environment((), OURS, {}, {}, frozenset())
    mine = Environment((), OURS, {}, {}, frozenset({"NCCL_SOCKET_IFNAME"}))
    assert environment.lines(nodes(ours, mine, interfaces=("eth1", "ib0"))) == [
        "set NCCL_SOCKET_IFNAME on gpu2",
        "set NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME to eth1 on gpu1",
        "set GLOO_SOCKET_IFNAME to ib0 on gpu2",
    ]


def test_values_are_never_shown() -> None:
    values = {**OURS, "TOKEN": "word"}
    one = Environment((), values, {"KEY": Secret("word")}, {}, frozenset({"TOKEN"}))
    lines = environment.lines(nodes(one, one))
    assert lines[:2] == ["set TOKEN", "set KEY for the ranks only"]
    assert "word" not in " ".join(lines)
