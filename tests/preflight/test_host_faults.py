"""Each fault of a host without GPUs, planted on one of four: one check names it, nothing else changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec, User
from tests.e2e.cluster import Cluster
from tests.e2e.terminal import on_terminal
from tests.preflight.faults import Change, Fault, lines, planted, there, told
from tests.preflight.host_faults import BATCHES, PASSWORD, PORTS, PYTHON, USER, edited, prepare
from tests.schemas import validate

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(120)]

SICK = ("node02", "node03", "node04")
FINE = ("ok", "skipped")


@pytest.fixture(scope="module")
def cluster(
    make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Four hosts of a user who may become root. What node04's sudo password is said to be is wrong."""
    variables = {
        "python": PYTHON,
        "port_range": PORTS,
        "ansible_become": "true",
        "ansible_become_password": PASSWORD,
    }
    spec = SandboxSpec.of(4, name="pf-host", networks=2, user=User(USER, PASSWORD), variables=variables)
    spec = spec.with_host("node04", variables={**variables, "ansible_become_password": "not it"})
    sandbox = make_sandbox(spec)
    for host in sandbox.hosts:
        prepare(sandbox, host)
    folder = tmp_path_factory.mktemp("host-faults") / "project"
    folder.mkdir()
    found = Cluster(sandbox, folder)
    yield found
    found.finish()


def read(cluster: Cluster) -> dict[str, Any]:
    finished = cluster.run("preflight", "INVENTORY", "--check", "--json")
    assert finished.out, finished.err
    document: dict[str, Any] = json.loads(finished.out)
    validate("preflight", document)
    assert document["exit_code"] == finished.code
    return document


def found(document: dict[str, Any]) -> dict[tuple[str, str], str]:
    """All that is not as it should be, by host: checks, findings about it, votes where it is odd."""
    checks = {
        (host, check["name"]): check["status"]
        for host, answer in document["hosts"].items()
        for check in answer["checks"]
    }
    between = {(each["from"], f"between: {each['name']}"): each["status"] for each in document["between"]}
    votes = {
        (host, f"vote: {each['fact']}"): each["status"] for each in document["vote"] for host in each["odd"]
    }
    return {key: status for key, status in {**checks, **between, **votes}.items() if status not in FINE}


def expected(host: str, fault: Fault) -> dict[tuple[str, str], str]:
    also = {(host, name): status for name, status in fault.beside}
    proofs = {(host, f"between: {name}"): "failed" for name in fault.between}
    hosts = (host, fault.twin) if fault.twin else (host,)
    votes = {(one, f"vote: {fact}"): "warning" for fact in fault.votes for one in hosts}
    return {**{(one, fault.check): fault.status for one in hosts}, **also, **proofs, **votes}


def test_sound_hosts_have_nothing_to_say(cluster: Cluster) -> None:
    document = read(cluster)
    assert (document["exit_code"], found(document)) == (0, {})
    checks = {each["name"]: each["status"] for each in document["hosts"]["node01"]["checks"]}
    for name in sorted({fault.check for batch in BATCHES for fault in batch}):
        assert checks[name] == "ok", name


@pytest.mark.parametrize(
    "batch", BATCHES, ids=[" + ".join(fault.name for fault in batch) for batch in BATCHES]
)
def test_one_check_names_each_fault(cluster: Cluster, batch: tuple[Fault, ...]) -> None:
    """One fault on each host but the first."""
    faults = dict(zip(SICK, batch, strict=False))
    with ExitStack() as stack:
        for host, fault in faults.items():
            stack.enter_context(planted(fault, cluster.sandbox, host))
        document = read(cluster)
    wanted: dict[tuple[str, str], str] = {}
    for host, fault in faults.items():
        wanted.update(expected(host, fault))
    assert found(document) == wanted
    assert bool(document["problem"]) == any(fault.no_job for fault in batch)
    for host, fault in faults.items():
        checks = {each["name"]: each for each in document["hosts"][host]["checks"]}
        assert fault.words in checks[fault.check]["message"]
        assert checks[fault.check]["hint"]
        assert {checks[name]["status"] for name in fault.hides} <= {"skipped"}


def test_a_firewall_is_named_on_its_host(cluster: Cluster) -> None:
    """Closed on node02, which preflight can open; dropped on the way out of node03, which is a person's."""
    other = cluster.sandbox.addresses("node04")[-1]
    closed = _table("input", f"iifname eth1 ct state new tcp dport {{ {PORTS}, 32768-60999 }} drop")
    held = _table("output", f"ip daddr {other} tcp dport {{ {PORTS} }} drop")
    with there(closed, cluster.sandbox, "node02"), there(held, cluster.sandbox, "node03"):
        document = read(cluster)
    checks = {key: status for key, status in found(document).items() if "between" not in key[1]}
    assert checks == {("node02", "firewall"): "pending", ("node03", "firewall out"): "manual"}
    pairs = {(each["from"], each["to"]): each["status"] for each in document["between"] if each["from"]}
    assert pairs == {
        ("node01", "node02"): "pending",
        ("node03", "node02"): "pending",
        ("node04", "node02"): "pending",
        ("node03", "node04"): "failed",
    }


_RAISE = """
ulimit -Sn; ulimit -Hn; ulimit -Sl
for limit in nofile=513 nofile=1024 memlock=unlimited; do
    prlimit --pid $$ --$limit 2>/dev/null && echo "$limit given" || echo "$limit refused"
done
"""
_CAP_SYS_RESOURCE = 1 << 24


def test_a_limit_is_what_the_kernel_refuses_to_exceed(cluster: Cluster) -> None:
    """What `limits` says of a login holds: the kernel refuses it more, so the hint turns to root."""
    low = lines(f"printf 'ulimit -n 512\\nulimit -l 64\\n' >/home/{USER}/.bashrc", f"rm /home/{USER}/.bashrc")
    root_may = int(told(cluster.sandbox, "node02", "sed -n 's/^CapEff:\t//p' /proc/self/status"), 16)
    with there(low, cluster.sandbox, "node02"):
        tried = _exec(cluster, _RAISE)
        as_root = _exec(cluster, _RAISE, "--become")
        document = read(cluster)
    refused = ["nofile=513 refused", "nofile=1024 refused", "memlock=unlimited refused"]
    assert tried == ["512", "512", "64", *refused]
    # Root of the host inherits them, and is refused as well where this machine gives it no such right.
    given = [line.replace("refused", "given") for line in refused]
    assert as_root == ["512", "512", "64", *(given if root_may & _CAP_SYS_RESOURCE else refused)]
    (check,) = (each for each in document["hosts"]["node02"]["checks"] if each["name"] == "limits")
    assert check["actual"] == {"open_files": 512, "locked_bytes": 64 * 1024}
    assert (check["status"], check["message"]) == (
        "warning",
        "ulimit -n is 512 (hard limit 512), this job wants at least 1024",
    )
    assert check["hint"].startswith("as root: a file in /etc/security/limits.d/")


def _exec(cluster: Cluster, line: str, *words: str) -> list[str]:
    """What a login's command prints on node02."""
    ended = cluster.run("exec", "INVENTORY", "--limit", "node02", "--json", *words, "--", line)
    assert ended.code == 0, ended.err
    return str(json.loads(ended.out)["hosts"]["node02"]["stdout"]).splitlines()


def test_a_sudo_password_that_is_asked_for_is_used(cluster: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.ini"
    text = cluster.sandbox.inventory.read_text()
    inventory.write_text(re.sub(r" ansible_become_password=('[^']*'|\S+)", "", text))
    wanted = edited(f"/etc/sudoers.d/{USER}", "s/NOPASSWD://")
    command = ("preflight", "--check", "-K", "--limit", "node02", str(inventory))
    with there(wanted, cluster.sandbox, "node02"):
        right = on_terminal(cluster, *command, answers={"sudo password:": PASSWORD})
        wrong = on_terminal(cluster, *command, answers={"sudo password:": "not this"})
    assert right.code == 0, right.text
    assert wrong.code == 1, wrong.text
    assert "the sudo password was wrong" in wrong.text
    assert "not this" not in wrong.text


def _table(hook: str, rule: str) -> Change:
    chain = f"type filter hook {hook} priority 0; policy accept; {rule};"
    return lines(f"nft 'table inet planted {{ chain c {{ {chain} }}; }}'", "nft delete table inet planted")


def test_nothing_of_the_faults_is_left(cluster: Cluster) -> None:
    """The last one: all were mended, so none has shown what an earlier one left."""
    assert found(read(cluster)) == {}
