"""The specification: what is refused, what differs, and the trip through the state file."""

from __future__ import annotations

import json
import sys

import pytest

from clusterkit.errors import InputError
from clusterkit.sandbox import Bind, HostSpec, SandboxSpec, User
from clusterkit.sandbox.spec import differences, spec_from_json


def test_hosts_are_numbered_and_share_their_options() -> None:
    spec = SandboxSpec.of(12, gpus=4)
    assert [host.name for host in spec.hosts][:2] == ["node01", "node02"]
    assert {host.gpus for host in spec.hosts} == {4}
    assert spec.python == (sys.executable,)


def test_more_than_99_hosts_have_names_of_equal_length() -> None:
    assert [host.name for host in SandboxSpec.of(100).hosts][::99] == ["node001", "node100"]


@pytest.mark.parametrize("name", ["", "Big", "a.b", "1st", "a" * 32, "a/b"])
def test_names_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be used"):
        SandboxSpec.of(1, name=name)


@pytest.mark.parametrize("count", [0, 251])
def test_host_counts_that_do_not_fit_are_refused(count: int) -> None:
    with pytest.raises(InputError, match="1 to 250 hosts"):
        SandboxSpec.of(count)


def test_two_hosts_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="used twice"):
        SandboxSpec((HostSpec("a"), HostSpec("a")))


@pytest.mark.parametrize("bastion", ["node01", "other"])
def test_a_host_must_be_behind_another_one(bastion: str) -> None:
    with pytest.raises(InputError, match="behind"):
        SandboxSpec.of(2).with_host("node01", behind=bastion)


def test_the_state_file_keeps_everything() -> None:
    spec = SandboxSpec.of(
        2,
        networks=2,
        binds=(Bind("/a", "/b", True),),
        shared_home=True,
        user=User("alice", password="x"),
        environment={"A": "1"},
        files={"/etc/motd": "hello"},
        sshd_config=("MaxStartups 2",),
    ).with_host("node02", behind="node01", port=2222)
    assert spec_from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_differences_name_both_values() -> None:
    there, asked = SandboxSpec.of(4, gpus=8), SandboxSpec.of(4, gpus=2, networks=2)
    assert differences(there, asked) == ("networks is 1, not 2", "gpus of node01 (and 3 more) is 8, not 2")
    assert differences(there, there) == ()


def test_another_number_of_hosts_is_one_difference() -> None:
    assert differences(SandboxSpec.of(4), SandboxSpec.of(6)) == ("it has 4 hosts, not 6",)
