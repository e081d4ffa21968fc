"""Shared storage with a real NFS server: mounted, kept, proved, what is wrong named, taken back."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit import between
from clusterkit.facts import Facts
from clusterkit.inventory.model import Settings
from clusterkit.preflight import Finding
from clusterkit.sandbox.sandbox import Sandbox
from clusterkit.sandbox.spec import SandboxSpec, User
from clusterkit.steps import Fleet
from tests.preflight import nfs
from tests.preflight.faults import do, told
from tests.preflight.layers import layer
from tests.preflight.nfs import SERVER
from tests.preflight.storage import PATH, Storage, check, needed, status

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]

CLIENTS = ("node02", "node03", "node04")
# A table of mounts as it often is: comments, blanks, tabs, a last line that does not end.
FSTAB = "# /etc/fstab: static file system information.\n\n/dev/vdz9\t/scratch  ext4\tnoauto 0 0"
# What a whole preflight of three hosts may take on a machine that does other things too, and what waiting for
# a server adds to it.
BOUND_S = 60.0


@pytest.fixture(scope="module")
def sandbox(make_sandbox: Callable[[SandboxSpec], Sandbox]) -> Sandbox:
    """A server and three clients."""
    needed()
    files = {**nfs.files(), "/etc/fstab": FSTAB}
    made = make_sandbox(SandboxSpec.of(4, name="pf-storage", python=(sys.executable,), files=files))
    nfs.prepare(made)
    return made


@pytest.fixture
def storage(sandbox: Sandbox, tmp_path: Path) -> Iterator[Storage]:
    """The hosts with nothing of ours on them; afterwards they are so again."""
    found = Storage(sandbox, tmp_path / "storage")
    yield found
    found.cluster.finish()
    for host in CLIENTS:
        for path in (PATH, "/b"):
            sandbox.sh(host, f"while umount {path} 2>/dev/null; do :; done; rm -rf /mnt/shared /b")
        do(sandbox, host, "cat >/etc/fstab", stdin=FSTAB)
    do(sandbox, SERVER, "rm -rf /export/a/* /export/b/*")


def test_it_is_mounted_kept_proved_and_taken_back(storage: Storage) -> None:
    sandbox = storage.sandbox
    files = {host: nfs.on_disk(sandbox, host) for host in CLIENTS}
    mounts = {host: nfs.mounted(sandbox, host) for host in CLIENTS}
    written = {host: layer(sandbox, host) for host in CLIENTS}

    # Neither `--check` nor the lack of somebody to ask changes anything.
    for words in (("--check",), ()):
        code, said = storage.preflight(*words)
        assert (code, status(said, "mounts")) == (3, dict.fromkeys(CLIENTS, "pending"))
        assert status(said, "mounts at boot") == dict.fromkeys(CLIENTS, "pending")
        assert {host: nfs.on_disk(sandbox, host) for host in CLIENTS} == files
        assert {host: nfs.mounted(sandbox, host) for host in CLIENTS} == mounts
        assert {host: layer(sandbox, host) for host in CLIENTS} == written

    code, said = storage.preflight("--yes")
    for name in ("mounts", "mounts at boot"):
        assert status(said, name) == dict.fromkeys(CLIENTS, "changed")
    assert status(said, "storage writable") == dict.fromkeys(CLIENTS, "ok")
    token = next(each for each in said["between"] if each["name"] == "shared mount")
    assert token["status"] == "ok"
    assert f"{PATH}: written by node02, read by 2 others within " in token["detail"]
    writes = next(each for each in said["between"] if each["name"] == "write test")
    assert (writes["status"], writes["detail"]) == (
        "ok",
        f"{PATH}: written, read back and removed on 3 hosts",
    )
    line = (
        f"{storage.server}:/a {PATH} nfs vers=3,_netdev,nofail,x-clusterkit,x-clusterkit.made=2,"
        "x-clusterkit.newline 0 0\n"
    )
    for host in CLIENTS:
        assert nfs.fstab(sandbox, host).decode() == f"{FSTAB}\n{line}"
        assert [each for each in nfs.mounted(sandbox, host) if each not in mounts[host]] == [
            f"{storage.server}:/a {PATH}"
        ]
    assert told(sandbox, SERVER, "ls -A /export/a") == ""

    # Once more changes nothing, on the hosts that know the mount under another name of the server neither.
    do(sandbox, "node02", f"echo {storage.server} nas >>/etc/hosts")
    storage.declare("a")
    text = storage.inventory.read_text().splitlines()
    storage.inventory.write_text(
        "\n".join(
            each.replace(f"nfs_source={storage.server}", "nfs_source=nas")
            if each.startswith("node02 ")
            else each
            for each in text
        )
        + "\n"
    )
    code, said = storage.preflight("--check")
    assert status(said, "mount source") == dict.fromkeys(CLIENTS, "ok")
    assert status(said, "mounts") == dict.fromkeys(CLIENTS, "ok")
    assert status(said, "mounts at boot") == {**dict.fromkeys(CLIENTS, "ok"), "node02": "pending"}
    storage.declare("a")
    do(sandbox, "node02", "sed -i '$d' /etc/hosts")
    code, said = storage.preflight("--yes")
    assert status(said, "mounts") == dict.fromkeys(CLIENTS, "ok")
    assert nfs.fstab(sandbox, "node02").decode() == f"{FSTAB}\n{line}"

    ended = storage.reset()
    assert ended.code == 0, ended.err
    assert {host: nfs.on_disk(sandbox, host) for host in CLIENTS} == files
    assert {host: nfs.mounted(sandbox, host) for host in CLIENTS} == mounts


def test_something_else_on_the_path_is_named_and_left_alone(storage: Storage) -> None:
    sandbox = storage.sandbox
    do(sandbox, "node03", f"mkdir -p {PATH}; mount -t nfs4 {storage.server}:/b {PATH}")
    do(sandbox, "node04", f"mkdir -p {PATH}; touch {PATH}/mine")
    before = nfs.mounted(sandbox, "node03")
    code, said = storage.preflight("--yes")
    assert code == 1
    assert status(said, "mount source") == {"node02": "ok", "node03": "failed", "node04": "failed"}
    assert status(said, "mounts") == {"node02": "changed", "node03": "skipped", "node04": "skipped"}
    message = check(said, "node03", "mount source")["message"]
    assert f"{storage.server}:/b (nfs4) where {storage.server}:/a (nfs) is declared" in message
    assert "would hide" in check(said, "node04", "mount source")["hint"]
    assert nfs.mounted(sandbox, "node03") == before
    assert nfs.fstab(sandbox, "node03").decode() == FSTAB
    assert told(sandbox, "node04", f"ls {PATH}") == "mine\n"
    # Reset takes back what preflight did on the one host, and nothing from the others.
    assert storage.reset().code == 0
    assert nfs.mounted(sandbox, "node03") == before
    assert told(sandbox, "node02", "ls -d /mnt/shared 2>/dev/null; echo gone") == "gone\n"


def test_a_mount_inside_another_is_mounted_after_it(storage: Storage) -> None:
    sandbox, inner = storage.sandbox, f"{PATH}/inner"
    mount = {"source": f"{storage.server}:/b", "path": inner, "options": "vers=3"}
    storage.declare("a", mounts=f"'{json.dumps([mount], separators=(',', ':'))}'")
    before = nfs.mounted(sandbox, "node02")
    _, said = storage.preflight("--yes", "--limit", "node02")
    assert check(said, "node02", "mounts")["status"] == "changed"
    assert [each for each in nfs.mounted(sandbox, "node02") if each not in before] == [
        f"{storage.server}:/a {PATH}",
        f"{storage.server}:/b {inner}",
    ]
    ended = storage.reset()
    assert ended.code == 0, ended.err
    assert nfs.mounted(sandbox, "node02") == before
    assert nfs.fstab(sandbox, "node02").decode() == FSTAB
    # The directory in it is on the server, and may be another host's mount point by now.
    assert told(sandbox, SERVER, "ls /export/a") == "inner\n"


def test_a_server_that_is_silent_costs_seconds(storage: Storage) -> None:
    sandbox = storage.sandbox
    storage.preflight("--yes")
    with nfs.silent(sandbox):
        with nfs.quicker_than(BOUND_S):
            code, said = storage.preflight("--check")
        assert code == 1
        assert status(said, "storage server") == dict.fromkeys(CLIENTS, "failed")
        assert check(said, "node03", "storage server")["message"] == (
            f"NFS server {storage.server}:2049 does not answer: it is mounted on {PATH}, and said nothing "
            "for 5 s"
        )
        others = [each for each in said["hosts"]["node03"]["checks"] if each["name"] != "storage server"]
        assert {each["status"] for each in others} <= {"ok", "skipped", "warning"}
        with nfs.quicker_than(BOUND_S):
            ended = storage.reset()
        assert ended.code == 1
        assert f"{PATH} stays mounted: its server does not answer" in ended.out
        assert nfs.fstab(sandbox, "node02").decode() != FSTAB
    # What waited goes on, and everything can be taken back.
    ended = storage.reset()
    assert ended.code == 0, ended.err
    assert nfs.fstab(sandbox, "node02").decode() == FSTAB


def test_a_server_that_is_not_there_is_not_mounted(storage: Storage) -> None:
    with nfs.dead(storage.sandbox):
        code, said = storage.preflight("--yes")
    assert code == 1
    assert check(said, "node02", "storage server")["message"] == (
        f"NFS server {storage.server}:2049 does not answer: connection refused"
    )
    assert status(said, "mounts") == dict.fromkeys(CLIENTS, "skipped")
    assert nfs.fstab(storage.sandbox, "node02").decode() == FSTAB


def test_who_may_not_write_is_named(storage: Storage) -> None:
    storage.declare("squashed")
    code, said = storage.preflight("--yes")
    assert code == 1
    assert status(said, "mounts") == dict.fromkeys(CLIENTS, "changed")
    assert check(said, "node02", "storage writable")["message"] == (
        f"root (uid 0) may not write to {PATH}: "
        "the server makes nobody of root (root_squash), or exports it read-only"
    )
    # The container's user is asked for as well, by the server's own word.
    storage.reset()
    storage.declare("a", container_runtime="docker", container_user="1234:1234")
    _, said = storage.preflight("--yes")
    key = f"{PATH} for 1234:1234 (uid 1234)"
    assert check(said, "node02", "storage writable")["actual"] == {
        f"{PATH} for root (uid 0)": True,
        key: False,
    }
    assert (
        check(said, "node02", "storage writable")["message"]
        == f"1234:1234 (uid 1234) may not write to {PATH}"
    )
    # On a client, for a server remembers owners for a while.
    do(storage.sandbox, "node02", f"chown 1234:1234 {PATH}")
    _, said = storage.preflight("--check")
    assert check(said, "node03", "storage writable")["actual"][key]
    do(storage.sandbox, "node02", f"chown 0:0 {PATH}")


def test_different_exports_on_one_path_are_named(storage: Storage) -> None:
    sandbox, server = storage.sandbox, storage.server
    storage.declare("b", only="node02")
    for host, export in (("node02", "b"), ("node03", "a"), ("node04", "a")):
        do(sandbox, host, f"mkdir -p {PATH}; mount -t nfs {server}:/{export} {PATH}")
    _, said = storage.preflight("--check")
    assert status(said, "same storage") == {"node02": "warning", "node03": "ok", "node04": "ok"}
    assert check(said, "node02", "same storage")["message"] == (
        f"{PATH} is {server}:/b here, and {server}:/a on most hosts"
    )
    # The first of them writes, and is the odd one: it is named all the same.
    sources = {"node02": f"{server}:/b", "node03": f"{server}:/a", "node04": f"{server}:/a"}
    found = between.share(
        {PATH: sources},
        {host: Settings(host, host) for host in CLIENTS},
        nfs.entered(sandbox, CLIENTS),
        lambda what, waiting: None,
        threading.Event(),
        between.Manner(visible_within_s=2),
    )
    assert [(each.status, each.source, each.to) for each in found] == [("failed", "node03", "node02")]
    assert f"{PATH} is {server}:/b on node02 and {server}:/a on node03" in found[0].detail
    for export in ("a", "b"):
        assert told(sandbox, SERVER, f"ls -A /export/{export}") == ""


def test_what_only_writing_shows_is_named(storage: Storage) -> None:
    sandbox, hosts = storage.sandbox, ("node02", "node03")
    for host in hosts:
        do(sandbox, host, f"mkdir -p {PATH}; mount -t nfs {storage.server}:/b {PATH}")
    fleet = Fleet(
        {host: Settings(host, host) for host in hosts},
        {host: Facts(host, {"storage_access": {}}) for host in hosts},
    )

    def write() -> list[tuple[str, str, str]]:
        mounts = {PATH: dict.fromkeys(hosts, "nas:/b")}
        remotes = nfs.entered(sandbox, hosts)
        found = between.write(mounts, fleet, remotes, lambda what, waiting: None, threading.Event())
        return [(each.status, each.source, each.detail) for each in found]

    assert write() == [("ok", "", f"{PATH}: written, read back and removed on 2 hosts")]
    do(sandbox, SERVER, "head -c 16k /dev/zero >/export/b/fill; mount -o remount,size=16k /export/b")
    try:
        # What is said about why is the client's: a kernel says "No space left on device".
        found = [(state, host, text.rpartition(": ")[0]) for state, host, text in write()]
        said = "this login cannot write to {} on {}"
        assert found == [("failed", host, said.format(PATH, host)) for host in hosts]
    finally:
        do(sandbox, SERVER, "mount -o remount,size=50% /export/b")
    assert told(sandbox, SERVER, "ls -A /export/b") == "fill\n"


def test_the_write_test_is_made_as_the_containers_user(storage: Storage) -> None:
    """The server says no to that user alone, whatever it said when it was asked before."""
    sandbox, host = storage.sandbox, "node02"
    do(sandbox, host, f"mkdir -p {PATH}; mount -t nfs {storage.server}:/b {PATH}")
    settings = Settings(host, host, container_runtime="docker", container_user="1234:1234")
    fleet = Fleet({host: settings}, {host: Facts(host, {"storage_access": {PATH: True}})})

    def write() -> Finding:
        remotes, mounts = nfs.entered(sandbox, (host,)), {PATH: {host: "nas:/b"}}
        (found,) = between.write(mounts, fleet, remotes, lambda what, waiting: None, threading.Event())
        return found

    refused = write()
    assert (refused.status, refused.source) == ("failed", host)
    assert refused.detail == (
        f"the container's user 1234:1234 cannot write to {PATH} on {host}: Permission denied"
    )
    assert refused.hint == (
        f"who may write there: ls -ldn {PATH}; root_squash on the server makes nobody of root"
    )
    do(sandbox, host, f"chown 1234:1234 {PATH}")
    try:
        assert write().status == "ok"
    finally:
        do(sandbox, host, f"chown 0:0 {PATH}")
    assert told(sandbox, SERVER, "ls -A /export/b") == ""


def test_root_in_the_container_of_a_login_that_may_write(
    make_sandbox: Callable[[SandboxSpec], Sandbox], tmp_path: Path
) -> None:
    """root_squash lets the login write, and not the root of its container; without it both may."""
    user, variables = User("train"), {"ansible_become": "true"}
    spec = SandboxSpec.of(
        3, name="pf-squash", python=(sys.executable,), files=nfs.files(), user=user, variables=variables
    )
    sandbox = make_sandbox(spec)
    nfs.prepare(sandbox, owner="train")
    uid = told(sandbox, "node02", "id -u train").strip()
    storage = Storage(sandbox, tmp_path / "storage")
    login, root = f"{PATH} for train (uid {uid})", f"{PATH} for root (uid 0)"

    storage.declare("squashed", container_runtime="docker", container_user="root")
    code, said = storage.preflight("--yes")
    assert (code, status(said, "storage writable")) == (1, dict.fromkeys(storage.clients, "failed"))
    found = check(said, "node02", "storage writable")
    assert found["actual"] == {login: True, root: False}
    assert found["message"] == (
        f"root (uid 0) may not write to {PATH}: "
        "the server makes nobody of root (root_squash), or exports it read-only"
    )
    assert found["hint"].startswith("leave container_user out: the job is the login user then; or export")
    assert _wrong(said) == {(host, "storage writable") for host in storage.clients}
    assert storage.reset().code == 0

    storage.declare("a", container_runtime="docker", container_user="root")
    _, said = storage.preflight("--yes")
    assert check(said, "node02", "storage writable")["actual"] == {login: True, root: True}
    assert _wrong(said) == set()
    writes = next(each for each in said["between"] if each["name"] == "write test")
    assert writes["detail"] == f"{PATH}: written, read back and removed on 2 hosts"
    assert told(sandbox, SERVER, "ls -A /export/a /export/squashed") == "/export/a:\n\n/export/squashed:\n"
    storage.cluster.finish()


def _wrong(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Checks and findings that are not as they should be."""
    checks = {
        (host, each["name"])
        for host, answer in document["hosts"].items()
        for each in answer["checks"]
        if each["status"] not in ("ok", "changed", "skipped")
    }
    between_hosts = {
        (each["from"], each["name"])
        for each in document["between"]
        if each["status"] not in ("ok", "skipped")
    }
    return checks | between_hosts


def test_a_server_with_little_room_is_named(storage: Storage) -> None:
    sandbox = storage.sandbox
    storage.preflight("--yes")
    do(sandbox, SERVER, "head -c 1000k /dev/zero >/export/a/fill; mount -o remount,size=1m /export/a")
    try:
        code, said = storage.preflight("--check")
    finally:
        do(sandbox, SERVER, "mount -o remount,size=50% /export/a")
    assert _wrong(said) == {(host, "storage space") for host in CLIENTS}
    assert (code, set(status(said, "storage space").values())) == (0, {"warning"})
    found = check(said, "node02", "storage space")
    assert re.fullmatch(rf"only [0-4]\.\d % of {PATH} is free", found["message"])


def test_a_mount_in_use_stays_and_its_user_is_named(storage: Storage) -> None:
    sandbox = storage.sandbox
    storage.preflight("--yes")
    do(sandbox, "node03", f"cd {PATH}; setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $! >/run/user.pid")
    pid = told(sandbox, "node03", "pgrep -x sleep").split()[0]
    ended = storage.reset()
    assert ended.code == 1
    assert f"node03: mounts failed: {PATH} stays mounted: it is in use by sleep (pid {pid})" in ended.out
    assert nfs.fstab(sandbox, "node02").decode() == FSTAB
    assert nfs.fstab(sandbox, "node03").decode() != FSTAB
    do(sandbox, "node03", f"kill {pid}")
    ended = storage.reset()
    assert ended.code == 0, ended.err
    assert nfs.fstab(sandbox, "node03").decode() == FSTAB


def test_the_data_set_is_compared(storage: Storage) -> None:
    sandbox = storage.sandbox
    fill = "mkdir -p /srv/set/x; for n in 1 2 3; do echo $n >/srv/set/x/$n; done"
    for host in CLIENTS:
        do(sandbox, host, fill)
    do(sandbox, "node04", "printf 9 >/srv/set/x/2; echo >>/srv/set/x/2")
    do(sandbox, "node03", "rm /srv/set/x/3")
    storage.declare("a", data_path="/srv/set")
    _, said = storage.preflight("--check")
    assert status(said, "data set") == {"node02": "ok", "node03": "failed", "node04": "failed"}
    assert check(said, "node03", "data set")["message"].startswith("/srv/set has 2 files, 4 bytes here")
    assert "other names or other contents" in check(said, "node04", "data set")["message"]
    for host in CLIENTS:
        do(sandbox, host, "rm -rf /srv/set")


_PACKAGE = r"""
set -e
mkdir -p /srv/package/DEBIAN /srv/package/usr/sbin /srv/packages
printf 'Package: nfs-common\nVersion: 9:1\nArchitecture: all\nMaintainer: none\nDescription: a test\n' \
    >/srv/package/DEBIAN/control
mv /sbin/mount.nfs /sbin/mount.nfs4 /srv/package/usr/sbin
dpkg-deb --build /srv/package /srv/packages/nfs-common.deb >/dev/null
cd /srv/packages
{
    cat /srv/package/DEBIAN/control
    echo Filename: ./nfs-common.deb
    echo "Size: $(stat -c %s nfs-common.deb)"
    echo "SHA256: $(sha256sum nfs-common.deb | cut -d' ' -f1)"
} >Packages
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*
echo 'deb [trusted=yes] file:/srv/packages ./' >/etc/apt/sources.list
dpkg --purge --force-depends nfs-common >/dev/null 2>&1 || dpkg --remove --force-all nfs-common >/dev/null
"""


def test_packages_are_installed_only_when_that_is_allowed(
    make_sandbox: Callable[[SandboxSpec], Sandbox], sandbox: Sandbox, storage: Storage
) -> None:
    do(sandbox, "node02", _PACKAGE)
    code, said = storage.preflight("--yes", "--limit", "node02")
    found = check(said, "node02", "mount programs")
    assert (code, found["status"]) == (1, "manual")
    assert found["message"] == "mount.nfs is not installed"
    assert "apt-get install nfs-common" in found["hint"]
    assert status(said, "mounts")["node02"] == "skipped"
    code, said = storage.preflight("--yes", "--install", "--limit", "node02")
    assert check(said, "node02", "mount programs")["status"] == "changed", said["hosts"]["node02"]
    assert check(said, "node02", "mounts")["status"] == "changed"
    # Packages stay.
    assert storage.reset().code == 0
    assert told(sandbox, "node02", "ls /sbin/mount.nfs4") == "/sbin/mount.nfs4\n"
