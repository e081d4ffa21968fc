"""A real NFS server on a sandbox host, and hosts that mount it; what a host looks like, file by file."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clusterkit.errors import HostTimeout
from clusterkit.remote.protocol import Result, Stream
from clusterkit.sandbox.sandbox import Sandbox
from tests.preflight.faults import do, told

PACKAGES = (
    *("nfs-ganesha", "nfs-ganesha-vfs", "nfs-common", "rpcbind"),
    *("libnfs13", "libfuse2", "python3-fusepy"),
)
SERVER = "node01"
EXPORTS = {"a": "no_root_squash", "b": "no_root_squash", "squashed": "root_squash"}

_HELPER = Path(__file__).with_name("mount_nfs.py").read_text()
_EXPORT = """
EXPORT {{ Export_Id = {number}; Path = /export/{name}; Pseudo = /{name}; Squash = {squash};
          FSAL {{ Name = VFS; }} }}
"""
# mount_path_pseudo: NFSv3 has the same names as NFSv4. The handles of files need a tmpfs below.
_GANESHA = """
NFS_CORE_PARAM { Protocols = 3, 4; Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = true;
                 fsid_device = true; }
NFSV4 { Graceless = true; RecoveryBackend = fs; Minor_Versions = 1, 2; }
EXPORT_DEFAULTS { Access_Type = RW; SecType = sys; Transports = TCP; }
LOG { Default_Log_Level = EVENT; }
""" + "".join(
    _EXPORT.format(number=number, name=name, squash=squash)
    for number, (name, squash) in enumerate(EXPORTS.items(), 1)
)
_DIRECTORIES = "".join(
    f"mkdir -p /export/{name}; mount -t tmpfs -o mode=755 export-{name} /export/{name}\n" for name in EXPORTS
)
_START = """
rpcinfo -p >/dev/null 2>&1 || rpcbind -w
ganesha.nfsd -f /etc/ganesha/test.conf -L /var/log/ganesha.log -p /run/ganesha.pid
for try in $(seq 200); do
    rpcinfo -t localhost nfs 3 >/dev/null 2>&1 && rpcinfo -t localhost mountd 3 >/dev/null 2>&1 && exit 0
    sleep 0.1
done
tail -n 5 /var/log/ganesha.log >&2; exit 1
"""


def files() -> dict[str, str]:
    """What every host gets: the server's configuration, and a mount program where the kernel has none."""
    helper = {} if _kernel_mounts_nfs() else {"/sbin/mount.nfs": _HELPER, "/sbin/mount.nfs4": _HELPER}
    return {"/etc/ganesha/test.conf": _GANESHA, **helper}


def _kernel_mounts_nfs() -> bool:
    return "\tnfs4\n" in Path("/proc/filesystems").read_text()


def prepare(sandbox: Sandbox, owner: str = "root") -> None:
    """The server serves, the clients can mount; that user of the server has the exports' directories."""
    given = "".join(f"chown {owner}: /export/{name}\n" for name in EXPORTS)
    folders = "mkdir -p /var/run/ganesha /var/lib/nfs/ganesha /run/rpcbind"
    do(sandbox, SERVER, f"{folders}\n{_DIRECTORIES}{given}")
    start(sandbox)
    if not _kernel_mounts_nfs():
        for host in sandbox.hosts:
            do(sandbox, host, "chmod 755 /sbin/mount.nfs /sbin/mount.nfs4")


def start(sandbox: Sandbox) -> None:
    """The server answers."""
    do(sandbox, SERVER, _START)


@contextmanager
def silent(sandbox: Sandbox) -> Iterator[None]:
    """The server takes connections and says nothing."""
    do(sandbox, SERVER, "kill -STOP $(cat /run/ganesha.pid)")
    try:
        yield
    finally:
        do(sandbox, SERVER, "kill -CONT $(cat /run/ganesha.pid)")


@contextmanager
def dead(sandbox: Sandbox) -> Iterator[None]:
    """There is no server."""
    do(sandbox, SERVER, "kill -KILL $(cat /run/ganesha.pid)")
    try:
        yield
    finally:
        start(sandbox)


def fstab(sandbox: Sandbox, host: str) -> bytes:
    return sandbox.read(host, "/etc/fstab")


def mounted(sandbox: Sandbox, host: str) -> list[str]:
    """`SOURCE PATH` of everything that is mounted, as the kernel says."""
    lines = told(sandbox, host, "cat /proc/self/mountinfo").splitlines()
    return [f"{line.split(' - ')[1].split()[1]} {line.split()[4]}" for line in lines]


def on_disk(sandbox: Sandbox, host: str) -> dict[str, tuple[Any, ...]]:
    """Every file that the host has of its own, with type, mode, owner and content; logs are left out."""
    top = sandbox.directory / "disks" / host / "upper"
    found: dict[str, tuple[Any, ...]] = {}
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = Path(folder) / name
            shown = f"/{path.relative_to(top)}"
            if not shown.startswith("/var/log/"):
                found[shown] = _described(path)
    return found


def _described(path: Path) -> tuple[Any, ...]:
    there = path.lstat()
    content = ""
    if stat.S_ISLNK(there.st_mode):
        content = str(path.readlink())
    elif stat.S_ISREG(there.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    return oct(there.st_mode), there.st_uid, there.st_gid, content


class Entered:
    """A host behind the Remote protocol without ssh, for what is about mounts alone."""

    def __init__(self, sandbox: Sandbox, alias: str) -> None:
        self._sandbox, self.alias = sandbox, alias

    def run(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Result:
        ended = self._sandbox.sh(self.alias, ["sh", "-c", script], timeout=timeout)
        return Result(ended.returncode, ended.stdout.encode(), ended.stderr.encode())

    def open(self, script: str, *, timeout: float, sudo: bool = False, doing: str = "command") -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


def entered(sandbox: Sandbox, hosts: Sequence[str]) -> dict[str, Entered]:
    return {host: Entered(sandbox, host) for host in hosts}


@contextmanager
def quicker_than(seconds: float) -> Iterator[None]:
    """What is done within takes no longer."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    if took > seconds:
        raise HostTimeout("here", f"took {took:.1f} s, and not {seconds:g}")
