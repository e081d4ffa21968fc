"""Which ports a run gets: free on all hosts, outside the ephemeral range, apart from other runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterkit.errors import TopologyError
from clusterkit.inventory.model import PortRange
from clusterkit.planning.ports import HostPorts, plan

DEBIAN = PortRange(32768, 60999)
RUN = "20260101-120000-ab12"


def host(alias: str, machine: str = "", **fields: object) -> HostPorts:
    usual = HostPorts(alias, machine or alias, 8, PortRange(30000, 65535), DEBIAN)
    return replace(usual, **fields)  # type: ignore[arg-type]


GPU01, GPU02 = host("gpu01"), host("gpu02")


def test_the_window_holds_everything_and_nothing_twice() -> None:
    found = plan([GPU01, GPU02], RUN)
    assert (found.channel_port, found.master_port) == (found.window.first, found.window.first + 1)
    assert found.launcher_ports == (PortRange(found.window.first + 2, found.window.last),) * 2
    assert found.window.last - found.window.first + 1 == 2 + 2 + 8 + 8
    assert not found.notes


def test_below_the_ephemeral_range_first() -> None:
    assert plan([GPU01], RUN).window.last < DEBIAN.first


def test_the_lowest_ephemeral_range_of_all_hosts_counts() -> None:
    assert plan([GPU01, host("gpu02", ephemeral=PortRange(30100, 60999))], RUN).window.last < 30100


def test_above_it_where_nothing_is_below() -> None:
    found = plan([host("gpu01", port_range=PortRange(32768, 65535))], RUN)
    assert found.window.first > DEBIAN.last
    assert not found.notes


def test_inside_it_with_a_warning() -> None:
    found = plan([host("gpu01", port_range=PortRange(40000, 50000))], RUN)
    assert 40000 <= found.window.first <= found.window.last <= 50000
    assert f"ports {found.window} lie in the kernel's ephemeral range" in found.notes[0]


def test_reserved_ports_of_the_kernel_are_not_ephemeral() -> None:
    reserved = (PortRange(41000, 41099),)
    inside = PortRange(40000, 50000)
    hosts = [host(name, port_range=inside, reserved=reserved) for name in ("gpu01", "gpu02")]
    found = plan(hosts, RUN)
    assert found.window.first in reserved[0]
    assert found.window.last in reserved[0]
    assert not found.notes
    assert plan([hosts[0], replace(hosts[1], reserved=())], RUN).notes


def test_the_same_run_gets_the_same_ports_and_another_run_others() -> None:
    assert plan([GPU01, GPU02], RUN) == plan([GPU01, GPU02], RUN)
    assert len({plan([GPU01], f"run-{number}").window.first for number in range(50)}) > 30


def test_ports_in_use_on_any_host_are_avoided() -> None:
    wanted = plan([GPU01, GPU02], RUN).window
    busy = host("gpu02", used={wanted.first + 5: "jupyter"})
    found = plan([GPU01, busy], RUN).window
    assert wanted.first + 5 not in found
    assert found.last < DEBIAN.first


def test_windows_of_other_runs_are_avoided() -> None:
    wanted = plan([GPU01], RUN).window
    found = plan([host("gpu01", windows={"other": wanted})], RUN).window
    assert found.first > wanted.last or found.last < wanted.first


def test_a_gap_of_exactly_the_right_size_is_found() -> None:
    used = {port: "x" for port in range(30000, 32768) if not 31003 <= port <= 31022}
    assert plan([host("gpu01", used=used)], RUN).window == PortRange(31003, 31022)


def test_nodes_of_one_machine_share_nothing() -> None:
    hosts = [host("a", "m1", local_ranks=2), host("b", "m1", local_ranks=4), host("c", "m2"), host("d", "m1")]
    found = plan(hosts, RUN)
    shares = found.launcher_ports
    assert (shares[0].first, shares[3].last) == (found.window.first + 2, found.window.last)
    assert shares[0] == shares[2]
    assert len({shares[0].first, shares[1].first, shares[3].first}) == 3
    for share in shares:
        assert share.last - share.first + 1 >= 2 + 8 + 8
    assert shares[0].last < shares[1].first
    assert shares[1].last < shares[3].first


def test_hosts_without_a_common_range() -> None:
    with pytest.raises(TopologyError, match="gpu02 has 41000-42000, gpu01 has 30000-40000"):
        plan(
            [
                host("gpu01", port_range=PortRange(30000, 40000)),
                host("gpu02", port_range=PortRange(41000, 42000)),
            ],
            RUN,
        )


def test_too_few_ports_names_who_holds_them() -> None:
    narrow = host("gpu01", port_range=PortRange(30000, 30025), used={30010: "jupyter-lab, pid 4242"})
    with pytest.raises(TopologyError) as failed:
        plan([narrow], RUN)
    assert failed.value.message == (
        "no 20 consecutive free TCP ports in port_range 30000-30025 on all 1 hosts; "
        "in use: 30010 (jupyter-lab, pid 4242 on gpu01)"
    )
    assert "port_range" in failed.value.hint


def test_every_window_fits_whatever_the_run_is_called() -> None:
    for number in range(500):
        narrow = PortRange(31000, 31000 + 20 + number % 37)
        window = plan([host("gpu01", port_range=narrow)], f"run-{number}").window
        assert narrow.first <= window.first <= window.last <= narrow.last
