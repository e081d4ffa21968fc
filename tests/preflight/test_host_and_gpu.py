"""Each fault of a host or its GPUs, planted on one of four: one check names it, nothing else changes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec, User
from tests.e2e.cluster import Cluster
from tests.preflight.faults import (
    Change,
    Fault,
    answers,
    do,
    gpus,
    lines,
    nodes_with,
    planted,
    program,
    running,
    supervised,
    there,
    told,
)

pytestmark = pytest.mark.hosts

ALL_GPUS = tuple(range(8))
SICK = ("node02", "node03", "node04")

# A Paddle for GPUs as its package metadata shows it; nothing of it is ever imported.
PADDLE = {
    "/opt/paddle/paddlepaddle_gpu-3.2.0.dist-info/METADATA": "Name: paddlepaddle-gpu\nVersion: 3.2.0\n",
    "/opt/paddle/paddle/version/__init__.py": "cuda_version = '12.4'\nnccl_version = '22100'\n",
}
XID_79 = "NVRM: Xid (PCI:0000:13:00): 79, pid=0, GPU has fallen off the bus."
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.107"
LOGIND = "echo KillUserProcesses=yes; echo KillOnlyUsers=; echo KillExcludeUsers="
SILENT = (
    *("driver version", "gpu architecture", "gpu count", "gpu model", "gpu modes", "persistence mode"),
    *("gpu memory", "fabric manager", "nvlink", "gpu processes", "held gpu memory"),
)


def _busy(sandbox: Sandbox, host: str) -> None:
    pid = int(told(sandbox, host, "sleep 300 >/dev/null 2>&1 & echo $! | tee /run/busy.pid"))
    app = {"gpu": 2, "pid": pid, "process_name": "sleep", "used_memory": 900}
    answers(nodes_with(compute_apps=[app]))[0](sandbox, host)


def _free(sandbox: Sandbox, host: str) -> None:
    told(sandbox, host, "kill $(cat /run/busy.pid); rm /run/busy.pid")
    answers(nodes_with())[1](sandbox, host)


def _own_name(address: Callable[[Sandbox], str]) -> Change:
    """The host's own name resolves to that address."""

    def plant(sandbox: Sandbox, host: str) -> None:
        own = f"s/^[0-9.]*\\(.*{host}\\)/{address(sandbox)}\\1/"
        do(sandbox, host, f"cp /etc/hosts /etc/hosts.sound; sed -i '{own}' /etc/hosts")

    return plant, lambda sandbox, host: do(sandbox, host, "mv /etc/hosts.sound /etc/hosts")


BASHRC = (
    "cp /root/.bashrc /root/.bashrc.sound 2>/dev/null || : >/root/.bashrc.sound; sed -i '1i {}' /root/.bashrc"
)
MEND_BASHRC = "mv /root/.bashrc.sound /root/.bashrc"

FAULTS = (
    Fault(
        "a GPU fallen off the bus",
        "gpu count",
        "failed",
        *answers(lambda said: said["gpus"].pop(4)),
        "lists 7 GPUs; most hosts have 8",
    ),
    Fault(
        "another GPU model",
        "gpu model",
        "failed",
        *answers(gpus(ALL_GPUS, name="NVIDIA A100-SXM4-80GB")),
        "its GPUs are NVIDIA A100-SXM4-80GB",
    ),
    Fault(
        "a driver too old for CUDA",
        "driver version",
        "failed",
        *answers(nodes_with(driver_version="470.141.03")),
        "too old for CUDA 12.4 of the installed Paddle",
    ),
    Fault(
        "a driver update without a reboot",
        "nvidia driver",
        "failed",
        *answers(nodes_with(failure={"exit_code": 18, "output": MISMATCH})),
        "reboot needed",
        SILENT,
    ),
    Fault(
        "a driver that hangs",
        "nvidia driver",
        "failed",
        *answers(nodes_with(hang_s=60)),
        "no answer within 20 s: the driver hangs",
        SILENT,
    ),
    Fault(
        "no GPU in a GPU inventory",
        "nvidia driver",
        "failed",
        *lines(
            "mv /usr/bin/nvidia-smi /usr/bin/nvidia-smi.away",
            "mv /usr/bin/nvidia-smi.away /usr/bin/nvidia-smi",
        ),
        "no GPU: there is no nvidia-smi",
        SILENT,
    ),
    Fault(
        "MIG left on",
        "gpu modes",
        "failed",
        *answers(gpus([5], mig__mode__current="Enabled")),
        "MIG is enabled on GPU 5",
    ),
    Fault(
        "compute mode prohibited",
        "gpu modes",
        "failed",
        *answers(gpus([0], compute_mode="Prohibited")),
        "Prohibited on GPU 0",
    ),
    Fault(
        "persistence mode off",
        "persistence mode",
        "warning",
        *answers(gpus(ALL_GPUS, persistence_mode="Disabled")),
        "off on GPUs 0,1",
    ),
    Fault(
        "uncorrected memory errors",
        "gpu memory",
        "failed",
        *answers(gpus([6], ecc__errors__uncorrected__volatile__total=3)),
        "3 uncorrected memory errors",
    ),
    Fault(
        "a row remap that waits for a reset",
        "gpu memory",
        "failed",
        *answers(gpus([1], remapped_rows__pending="Yes")),
        "waits for a reset of GPU 1",
    ),
    Fault(
        "ECC off on one GPU",
        "gpu memory",
        "warning",
        *answers(gpus([7], ecc__mode__current="Disabled")),
        "ECC is off on GPU 7",
    ),
    Fault(
        "Xid 79 in the kernel log",
        "gpu errors",
        "failed",
        *program("/usr/local/sbin/dmesg", f"echo '{XID_79}'"),
        "Xid 79 on GPU 3",
    ),
    Fault(
        "a fabric that is not ready",
        "fabric manager",
        "failed",
        *answers(gpus(ALL_GPUS, fabric__state="In Progress")),
        "not in the NVLink fabric",
    ),
    Fault(
        "NVLinks down",
        "nvlink",
        "failed",
        *answers(gpus([2], nvlink__inactive=[4, 9])),
        "GPU 2 has 16 NVLinks, not 18",
    ),
    Fault("someone else's process on a GPU", "gpu processes", "failed", _busy, _free, "GPU 2 in use by pid"),
    Fault(
        "GPU memory that nobody seems to hold",
        "held gpu memory",
        "warning",
        *answers(gpus([3], memory__used=40210)),
        "40210 MiB are in use on GPU 3",
    ),
    Fault(
        "the own name leads to another host",
        "host name",
        "failed",
        *_own_name(lambda sandbox: sandbox.addresses("node01")[-1]),
        "an address of node01",
    ),
    Fault(
        "the own name leads to loopback",
        "host name",
        "warning",
        *_own_name(lambda sandbox: "127.0.1.1"),
        "resolves to 127.0.1.1",
    ),
    Fault(
        "the training interface is down",
        "node address",
        "failed",
        *lines("ip link set eth1 down", "ip link set eth1 up"),
        "on eth1, which is down",
    ),
    Fault(
        "a pending reboot",
        "reboot",
        "warning",
        *lines(
            "echo linux-image-amd64 >/run/reboot-required.pkgs; : >/run/reboot-required",
            "rm /run/reboot-required /run/reboot-required.pkgs",
        ),
        "pending (for linux-image-amd64)",
    ),
    Fault(
        "few open files",
        "limits",
        "warning",
        *lines(BASHRC.format("ulimit -n 512"), MEND_BASHRC),
        "ulimit -n is 512",
    ),
    Fault(
        "proxies at login",
        "login environment",
        "warning",
        *lines(BASHRC.format("export HTTP_PROXY=http://proxy:3128"), MEND_BASHRC),
        "HTTP_PROXY would catch",
    ),
    Fault(
        "a launcher variable at login",
        "login environment",
        "warning",
        *lines(BASHRC.format("export PADDLE_NNODES=1"), MEND_BASHRC),
        "overrides the launcher's --nnodes",
    ),
    Fault(
        "logind ends processes at logout",
        "detached runs",
        "pending",
        *program("/usr/local/bin/loginctl", LOGIND),
        "logind ends the processes of root at logout",
    ),
    Fault(
        "a GPU that CUDA no longer knows",
        "gpu architecture",
        "failed",
        *answers(gpus(ALL_GPUS, architecture="Kepler")),
        "CUDA 12.4 of the installed Paddle does not run on",
    ),
    Fault(
        "a Paddle without CUDA",
        "paddle",
        "failed",
        *lines(
            "cd /opt/paddle; mv paddlepaddle_gpu-3.2.0.dist-info paddlepaddle-3.2.0.dist-info; "
            "mv paddle paddle.away",
            "cd /opt/paddle; mv paddlepaddle-3.2.0.dist-info paddlepaddle_gpu-3.2.0.dist-info; "
            "mv paddle.away paddle",
        ),
        "was built without CUDA",
        ("same paddle", "driver version", "gpu architecture"),
    ),
    Fault(
        "another run on the same GPUs",
        "other runs",
        "failed",
        *running(
            supervised("20260101-120000-live"),
            sys.executable,
            "CLUSTERKIT_RUN_ID=20260101-120000-live CLUSTERKIT_DEVICES=0,1",
        ),
        "run 20260101-120000-live is alive here and uses GPU 0,1",
    ),
)


@pytest.fixture
def cluster(make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path) -> Cluster:
    """Four GPU hosts whose training network is not the one that we come in on."""
    spec = SandboxSpec.of(
        4,
        name="pf-gpu",
        networks=2,
        gpus=8,
        files=PADDLE,
        environment={"PYTHONPATH": "/opt/paddle"},
        variables={"devices": "0,1,2,3,4,5,6,7"},
    )
    (tmp_path / "project").mkdir()
    return Cluster(make_sandbox(spec), tmp_path / "project")


def read(cluster: Cluster) -> dict[str, Any]:
    finished = cluster.run("preflight", "INVENTORY", "--check", "--json")
    assert finished.out, finished.err
    document: dict[str, Any] = json.loads(finished.out)
    assert document["exit_code"] == finished.code
    return document


def found(document: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Every check that is not as it should be."""
    return {
        (host, check["name"]): check["status"]
        for host, answer in document["hosts"].items()
        for check in answer["checks"]
        if check["status"] not in ("ok", "skipped")
    }


def check_of(document: dict[str, Any], host: str, name: str) -> dict[str, Any]:
    (check,) = [each for each in document["hosts"][host]["checks"] if each["name"] == name]
    return dict(check)


def test_sound_hosts_have_nothing_to_say(cluster: Cluster) -> None:
    document = read(cluster)
    assert found(document) == {}
    assert document["exit_code"] == 0
    for name in (*SILENT, "nvidia driver", "gpu errors", "limits", "memory", "reboot", "detached runs"):
        assert check_of(document, "node01", name)["status"] == "ok", name
    assert check_of(document, "node01", "node address")["actual"]["interface"] == "eth1"


@pytest.mark.parametrize("first", range(0, len(FAULTS), len(SICK)))
def test_one_check_names_each_fault(cluster: Cluster, first: int) -> None:
    """One fault on each host but the first: each has one check that is not as it should be, node01 none."""
    faults = dict(zip(SICK, FAULTS[first:], strict=False))
    with ExitStack() as stack:
        for host, fault in faults.items():
            stack.enter_context(planted(fault, cluster.sandbox, host))
        document = read(cluster)
    assert found(document) == {(host, fault.check): fault.status for host, fault in faults.items()}
    # What needs a planned job is judged on the others all the same.
    for name in ("node address", "ports", "gpu processes"):
        assert check_of(document, "node01", name)["status"] == "ok", name
    hung = [host for host, fault in faults.items() if fault.check == "nvidia driver"]
    assert all(host in document["problem"] for host in hung)
    assert not [host for host in cluster.hosts if host not in faults and host in document["problem"]]
    for host, fault in faults.items():
        check = check_of(document, host, fault.check)
        assert fault.words in check["message"]
        assert check["hint"]
        skipped = [each["name"] for each in document["hosts"][host]["checks"] if each["status"] == "skipped"]
        assert set(fault.hides) <= set(skipped)


_DRIVERS = """
[minimum]
"12" = "470.57.02"
[own]
"12.4" = "470.141.03"
"""
_XIDS = """
[classes.accepted]
status = "warning"
codes = [79]
advice = "our riser cables do that, see the wiki"
[classes.hotline]
status = "failed"
codes = [31]
advice = "call the data centre, extension 4711"
"""


def test_a_sites_own_tables_decide(cluster: Cluster) -> None:
    """From clusterkit.toml to the line that is read: one entry lets pass, one excuses, one forbids."""
    sandbox, folder = cluster.sandbox, cluster.folder
    old = answers(nodes_with(driver_version="470.141.03"))
    fallen = program("/usr/local/sbin/dmesg", f"echo '{XID_79}'")
    mmu = program("/usr/local/sbin/dmesg", f"echo '{XID_79.replace('79, pid', '31, pid')}'")
    with there(old, sandbox, "node02"), there(fallen, sandbox, "node03"), there(mmu, sandbox, "node04"):
        shipped = cluster.run("preflight", "INVENTORY", "--check")
        (folder / "site").mkdir()
        (folder / "site" / "drivers.toml").write_text(_DRIVERS)
        (folder / "site" / "xids.toml").write_text(_XIDS)
        (folder / "clusterkit.toml").write_text(
            'driver_table = "site/drivers.toml"\nxid_table = "site/xids.toml"\n'
        )
        own = cluster.run("preflight", "INVENTORY", "--check")
    lines_of = {"shipped": _named(shipped.out), "own": _named(own.out)}
    assert lines_of == {
        "shipped": {
            "node02: driver version failed",
            "node03: gpu errors failed",
            "node04: gpu errors warning",
        },
        "own": {"node03: gpu errors warning", "node04: gpu errors failed"},
    }
    assert "470.141.03 is too old for CUDA 12.4 of the installed Paddle" in shipped.out
    assert "our riser cables do that, see the wiki" in own.out
    assert "call the data centre, extension 4711" in own.out
    assert (shipped.code, own.code) == (1, 1)


def _named(report: str) -> set[str]:
    """`HOST: CHECK STATUS` of each line about a check that is not as it should be."""
    wanted = r"(node\d+: (?:driver version|gpu errors) (?:failed|warning)): "
    return {found.group(1) for line in report.splitlines() if (found := re.match(wanted, line))}


def test_logind_is_told_to_leave_the_user_alone_and_reset_takes_it_back(cluster: Cluster) -> None:
    """A logind that obeys its files: the stand-in answers from them, and notes each reload."""
    sandbox, host = cluster.sandbox, "node02"
    obeyed = "cat /etc/systemd/logind.conf.d/*.conf 2>/dev/null | grep ^Kill || echo KillExcludeUsers="
    loginctl = program("/usr/local/bin/loginctl", f"echo KillUserProcesses=yes; {obeyed}")
    systemctl = program("/usr/local/bin/systemctl", 'echo "$*" >>/run/systemctl.log')
    before = told(sandbox, host, "find /etc/systemd | sort")

    def status(*words: str) -> str:
        document = json.loads(cluster.run("preflight", "INVENTORY", "--json", *words).out)
        return str(check_of(document, host, "detached runs")["status"])

    with there(loginctl, sandbox, host), there(systemctl, sandbox, host):
        assert status("--yes") == "changed"
        written = told(sandbox, host, "cat /etc/systemd/logind.conf.d/60-clusterkit.conf")
        assert written.splitlines()[-2:] == ["[Login]", "KillExcludeUsers=root root"]
        assert status("--yes") == "ok"
        reload = "kill -s HUP systemd-logind.service\n"
        assert told(sandbox, host, "cat /run/systemctl.log") == reload
        assert cluster.run("reset", "INVENTORY", "--yes").code == 0
        assert told(sandbox, host, "cat /run/systemctl.log") == 2 * reload
        assert told(sandbox, host, "find /etc/systemd | sort") == before


def test_a_cpu_inventory_with_a_user_who_may_not_become_root(
    make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path
) -> None:
    spec = SandboxSpec.of(2, name="pf-sudo", variables={"ansible_become": "true"})
    spec = spec.with_host("node02", user=User("train", sudo="none"))
    (tmp_path / "project").mkdir()
    document = read(Cluster(make_sandbox(spec), tmp_path / "project"))
    sudo = check_of(document, "node02", "sudo")
    assert sudo["status"] == "manual"
    assert sudo["message"] == "sudo wants train's password"
    assert "--ask-become-pass" in sudo["hint"]
    assert {host for host, _ in found(document)} == {"node02"}
    assert document["exit_code"] == 1
    for name in ("nvidia driver", "gpu count", "gpu errors", "gpu processes"):
        assert check_of(document, "node01", name)["status"] == "skipped", name
