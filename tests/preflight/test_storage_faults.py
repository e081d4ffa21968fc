"""Each fault of shared storage, planted on one of four clients: one check names it, nothing else changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec
from tests.preflight import nfs
from tests.preflight.faults import Fault, do, lines, planted
from tests.preflight.nfs import SERVER
from tests.preflight.storage import PATH, Storage, check, needed

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]

CLIENTS = ("node02", "node03", "node04", "node05")
SICK = CLIENTS[1:]

UNMOUNT, MOUNT = f"umount {PATH}", f"mount {PATH}"
# What cannot be looked at where nothing is mounted.
UNMOUNTED = ("mount options", "storage writable", "storage space", "same storage")
BLOCKED = ("mounts", "mounts at boot", *UNMOUNTED)
KEEP, RESTORE = "cp -p /etc/fstab /etc/fstab.sound", "mv /etc/fstab.sound /etc/fstab"
EDIT = f"sed -i 's|^\\([^#]*\\) {PATH} .*|{{}}|' /etc/fstab"

FAULTS = (
    Fault(
        "shared storage not mounted", "mounts", "pending", *lines(UNMOUNT, MOUNT), "is not mounted", UNMOUNTED
    ),
    Fault(
        "another export on the path",
        "mount source",
        "failed",
        *lines(f"{UNMOUNT}; mount -t nfs nas:/b {PATH}", f"{UNMOUNT}; {MOUNT}"),
        "has nas:/b (nfs) where nas:/a (nfs) is declared",
        BLOCKED,
    ),
    Fault(
        "a local disk on the path",
        "mount source",
        "failed",
        *lines(f"{UNMOUNT}; mount -t tmpfs scratch {PATH}", f"{UNMOUNT}; {MOUNT}"),
        "has scratch (tmpfs) where",
        BLOCKED,
    ),
    Fault(
        "files where the mount should be",
        "mount source",
        "failed",
        *lines(f"{UNMOUNT}; touch {PATH}/mine", f"rm {PATH}/mine; {MOUNT}"),
        "has files of this host where",
        BLOCKED,
    ),
    Fault(
        "an fstab line for something else",
        "mount source",
        "failed",
        *lines(f"{KEEP}; {EDIT.format(f'nas2:/scratch {PATH} nfs nofail,_netdev 0 0')}", RESTORE),
        "has nas2:/scratch (nfs) in /etc/fstab where",
        ("mounts", "mounts at boot"),
    ),
    Fault(
        "no fstab line",
        "mounts at boot",
        "pending",
        *lines(f"{KEEP}; sed -i '$d' /etc/fstab", RESTORE),
        f"{PATH} is not in /etc/fstab",
    ),
    Fault(
        "an fstab line that may hang the boot",
        "mount options",
        "warning",
        *lines(f"{KEEP}; {EDIT.format(f'nas:/a {PATH} nfs vers=3 0 0')}", RESTORE),
        "without _netdev and nofail",
    ),
    Fault(
        "mounted read-only",
        "mount options",
        "manual",
        *lines(f"{UNMOUNT}; mount -t nfs -o ro nas:/a {PATH}", f"{UNMOUNT}; {MOUNT}"),
        "mounted with ro, not rw",
        ("storage writable",),
    ),
    Fault(
        "no way to the NFS server",
        "storage server",
        "failed",
        *lines(
            *(
                f"ip route {verb} unreachable $(getent hosts nas | cut -d' ' -f1)/32"
                for verb in ("add", "del")
            )
        ),
        "NFS server nas:2049 does not answer",
        UNMOUNTED,
    ),
    Fault(
        "no program that mounts NFS",
        "mount programs",
        "manual",
        *lines(f"{UNMOUNT}; mv /sbin/mount.nfs /sbin/away", f"mv /sbin/away /sbin/mount.nfs; {MOUNT}"),
        "mount.nfs is not installed",
        BLOCKED,
    ),
    Fault(
        "a server name without an address",
        "storage server",
        "failed",
        *lines(
            f"{UNMOUNT}; sed -i 's/ nas$/ away/' /etc/hosts", f"sed -i 's/ away$/ nas/' /etc/hosts; {MOUNT}"
        ),
        "NFS server nas has no address",
        BLOCKED,
    ),
    Fault(
        "another data set",
        "data set",
        "failed",
        *lines("mount -t tmpfs none /srv; mkdir /srv/set; echo 8 >/srv/set/part", "umount /srv"),
        "other names or other contents",
    ),
)


@pytest.fixture(scope="module")
def storage(
    make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Storage]:
    """Four clients on which preflight has mounted everything, and a data set on the disk of each."""
    needed()
    files = {**nfs.files(), "/srv/set/part": "7\n"}
    sandbox = make_sandbox(SandboxSpec.of(5, name="pf-storage-faults", python=(sys.executable,), files=files))
    nfs.prepare(sandbox)
    for host in CLIENTS:
        do(sandbox, host, f"echo '{sandbox.addresses(SERVER)[0]} nas' >>/etc/hosts")
    found = Storage(sandbox, tmp_path_factory.mktemp("storage") / "storage", server="nas")
    found.declare("a", data_path="/srv/set")
    found.preflight("--yes")
    yield found
    found.cluster.finish()


def _wrong(document: dict[str, object]) -> dict[tuple[str, str], str]:
    hosts = document["hosts"]
    assert isinstance(hosts, dict)
    return {
        (host, each["name"]): each["status"]
        for host, answer in hosts.items()
        for each in answer["checks"]
        if each["status"] not in ("ok", "skipped")
    }


def test_sound_hosts_have_nothing_to_say(storage: Storage) -> None:
    code, said = storage.preflight("--check")
    assert (code, _wrong(said)) == (0, {})


@pytest.mark.parametrize("first", range(0, len(FAULTS), len(SICK)))
def test_one_check_names_each_fault(storage: Storage, first: int) -> None:
    """One fault on each host but the first: each has one check that is not as it should be, node02 none."""
    faults = dict(zip(SICK, FAULTS[first:], strict=False))
    with ExitStack() as stack:
        for host, fault in faults.items():
            stack.enter_context(planted(fault, storage.sandbox, host))
        _, said = storage.preflight("--check")
    assert _wrong(said) == {(host, fault.check): fault.status for host, fault in faults.items()}
    for host, fault in faults.items():
        found = check(said, host, fault.check)
        assert fault.words in found["message"]
        assert found["hint"]
        skipped = [each["name"] for each in said["hosts"][host]["checks"] if each["status"] == "skipped"]
        assert set(fault.hides) <= set(skipped)


def test_a_job_does_not_start_without_its_storage(storage: Storage) -> None:
    """3 where preflight would mount it, 1 where it cannot; nothing of the job is on any host."""
    (storage.cluster.folder / "train.py").write_text("print('started')\n")
    fault = {each.name: each for each in FAULTS}
    for name, code in (("shared storage not mounted", 3), ("another export on the path", 1)):
        with planted(fault[name], storage.sandbox, "node03"):
            ended = storage.cluster.run("launch", str(storage.inventory), "train.py")
        assert ended.code == code, ended.err
        assert f"node03: {fault[name].check} {fault[name].status}: " in ended.err
        assert fault[name].words in ended.err
        assert storage.cluster.marked() == []
