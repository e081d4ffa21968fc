"""How servers and trainers are shared out over the hosts, and what the launcher is told of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterkit.errors import InputError, NotFound
from clusterkit.inventory.model import PortRange
from clusterkit.planning.dialects import for_version
from clusterkit.planning.roles import Role, Wanted, share_out
from clusterkit.planning.topology import Node, Topology
from clusterkit.runs import processes
from clusterkit.runs.record import NodeRecord, RunRecord
from clusterkit.runs.selection import choose
from clusterkit.steps import judge
from clusterkit.steps.name import HostName
from tests.steps.fleets import fleet
from tests.test_dialects import CALL, parsed

HOSTS = ("a", "b", "c")


@pytest.mark.parametrize(
    ("wanted", "roles"),
    [
        (Wanted(2, 3), {"a": Role(1, 1), "b": Role(1, 1), "c": Role(0, 1)}),
        (Wanted(1, 4), {"a": Role(1, 2), "b": Role(0, 1), "c": Role(0, 1)}),
        (Wanted(1, 1), {"a": Role(1, 1)}),
        (Wanted(None, None, {"a"}, {"b", "c"}), {"a": Role(1, 0), "b": Role(0, 1), "c": Role(0, 1)}),
        (Wanted(3, None, {"c", "a"}, {"c"}, {"c": 2}), {"a": Role(2, 0), "c": Role(1, 2)}),
        (Wanted(None, 2, {"b"}, None), {"a": Role(0, 1), "b": Role(1, 1)}),
    ],
)
def test_roles(wanted: Wanted, roles: dict[str, Role]) -> None:
    assert share_out(HOSTS, wanted) == roles


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(None, 3), "how many servers"),
        (Wanted(2, None), "how many trainers"),
        (Wanted(None, 1, {"elsewhere"}), r"group \[servers\] takes part"),
    ],
)
def test_what_is_missing_is_said(wanted: Wanted, message: str) -> None:
    with pytest.raises(InputError, match=message):
        share_out(HOSTS, wanted)


def topology(ips: tuple[str, str, str] = ("10.0.0.1", "10.0.0.2", "10.0.0.3")) -> Topology:
    shares = tuple(PortRange(30002, 30012) for _ in ips)
    nodes = (
        Node("a", 0, ips[0], "eth0", (0,), None, "python3", (0,)),
        Node("b", 1, ips[1], "eth0", (1, 2), None, "python3", (1, 2)),
        Node("c", 2, ips[2], "eth0", (3,), None, "python3"),
    )
    return Topology(nodes, PortRange(30000, 30012), 30000, 30001, shares)


def test_every_endpoint_is_planned() -> None:
    assert topology().server_endpoints == ("10.0.0.1:30002", "10.0.0.2:30002", "10.0.0.2:30003")
    assert topology().trainer_endpoints == (
        *("10.0.0.1:30003", "10.0.0.2:30004", "10.0.0.2:30005"),
        "10.0.0.3:30002",
    )
    assert topology().world_size == 4


SERVERS = replace(
    CALL, servers=("10.0.0.1:1", "10.0.0.2:1"), trainers=("10.0.0.1:2",), gloo_port=9, devices=None
)


@pytest.mark.parametrize("version", ["2.4.2", "2.6.2"])
def test_the_launcher_is_told_all_endpoints(version: str) -> None:
    options = for_version(version, "h").server_options
    assert options is not None
    found = parsed(version, [*options(SERVERS), "python3", "train.py"])
    assert (found.run_mode, found.servers, found.trainers) == ("ps", "10.0.0.1:1,10.0.0.2:1", "10.0.0.1:2")
    assert (found.host, found.gloo_port, found.log_dir) == ("10.0.0.2", 9, "/l")
    assert (found.training_script, found.training_script_args) == ("python3", ["train.py"])


def test_what_its_launcher_would_mix_up_is_refused() -> None:
    dialect = for_version("2.6.2", "h")
    dialect.refuse("2.6.2", SERVERS, HOSTS, ("x.py",))
    for ips, both in (
        (("10.0.0.1", "10.0.0.12"), "10.0.0.1 and 10.0.0.12"),
        (("127.0.0.10", "127.0.0.2"), "127.0.0.1 and 127.0.0.10"),
    ):
        with pytest.raises(InputError, match=f"cannot tell the servers of {both} apart"):
            dialect.refuse("2.6.2", replace(SERVERS, node_ips=ips), HOSTS, ("x.py",))
    with pytest.raises(InputError, match=r"that takes 2\.4 or newer"):
        for_version("2.3.2", "h").refuse("2.3.2", SERVERS, HOSTS, ("x.py",))


def record() -> RunRecord:
    def node(host: str, rank: int, ranks: tuple[int, ...], servers: tuple[int, ...]) -> NodeRecord:
        return NodeRecord(host, rank, "10.0.0.1", ranks, "python3", "/r", "/w", "/l", {}, servers=servers)

    return RunRecord("r", "i", "x.py", (), 0.0, (node("a", 0, (0,), (0,)), node("b", 1, (1, 2), (1, 2))))


def test_ranks_and_servers_are_chosen_by_their_own_numbers() -> None:
    server = processes.server
    assert choose(record(), None, []) == (0, 1, 2)
    assert choose(record(), None, [], "0,2") == (server(0), server(2))
    assert choose(record(), "1", [], "all") == (1, server(0), server(1), server(2))
    assert choose(record(), None, ["b"], "all") == (server(1), server(2))
    with pytest.raises(NotFound, match="there is no server 3: the run has 3 servers"):
        choose(record(), None, [], "3")


def test_a_server_has_a_place_and_a_log_of_its_own() -> None:
    node = record().node_of(processes.server(2))
    assert node.host == "b"
    assert node.log_of(processes.server(2)) == "/l/serverlog.1"
    assert node.log_of(2) == "/l/workerlog.1"
    assert [processes.of_log(processes.log_name(each)) for each in node.processes] == list(node.processes)
    assert processes.of_log("launcher") is None


@pytest.mark.parametrize(("serving", "status"), [(True, "failed"), (False, "warning")])
def test_a_name_that_leads_to_loopback_keeps_trainers_apart(serving: bool, status: str) -> None:
    """Seen with 2.6.2: its Gloo connects to 127.0.1.1 though `GLOO_SOCKET_IFNAME` says otherwise."""
    seen = fleet({"hosts": {"gpu01": {"facts": {"name": "debian-loopback"}}}})
    assert seen.topology is not None
    nodes = tuple(replace(node, servers=(0,) if serving else ()) for node in seen.topology.nodes)
    seen = replace(seen, topology=replace(seen.topology, nodes=nodes))
    verdict = judge(HostName(), "gpu01", seen)
    assert verdict.status == status
