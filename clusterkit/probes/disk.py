"""The file systems that a run's files would lie on."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import Settings

# File systems whose files other machines see too: locks do not work there, and logs are slow.
NETWORK_TYPES = frozenset(
    {
        *(
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "coda",
            "fhgfs",
            "gfs2",
            "glusterfs",
            "gpfs",
            "lustre",
            "ncpfs",
        ),
        *(
            "nfs",
            "nfs4",
            "ocfs2",
            "orangefs",
            "panfs",
            "pvfs2",
            "quobyte",
            "smb3",
            "smbfs",
            "virtiofs",
            "wekafs",
        ),
    }
)
# Fuse mounts are named fuse.PROGRAM: all that are known to be of this machine alone.
LOCAL_FUSE_TYPES = frozenset(
    {"fuseblk", "fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.gocryptfs", "fuse.encfs", "fuse.lxcfs"}
)


@dataclass(frozen=True)
class Disk:
    """The nearest directory above (or at) a path that exists, and its file system. Sizes in bytes.

    `free_files`: how many more it can hold; None where it does not count them.
    """

    path: str
    exists: bool
    is_directory: bool
    writable: bool
    free: int
    mount_point: str
    type: str
    options: tuple[str, ...]
    free_files: int | None = None

    @property
    def network(self) -> bool:
        """True if other machines may see the same files."""
        fuse = self.type.startswith("fuse") and self.type not in LOCAL_FUSE_TYPES
        return self.type in NETWORK_TYPES or fuse

    @property
    def executable(self) -> bool:
        """False if the file system is mounted `noexec`."""
        return "noexec" not in self.options


def shell_path(path: str) -> str:
    """`path` quoted for a POSIX shell, a leading `~` being the login user's home."""
    if path == "~" or path.startswith("~/"):
        return '"$HOME"' + (shlex.quote(path[1:]) if path[1:] else "")
    return shlex.quote(path)


# `df` names the mount point, mountinfo its type and options; its last line for a mount point is on top.
_SHELL = r"""
case $wanted in /*) ;; *) wanted=$HOME/$wanted ;; esac
near=$wanted
while [ ! -e "$near" ] && [ -n "$near" ]; do near=${near%/*}; done
near=${near:-/}
[ -e "$wanted" ] && echo exists=yes
[ -d "$near" ] && echo directory=yes
[ -w "$near" ] && [ -x "$near" ] && echo writable=yes
# A directory that the user may not enter keeps the name by which it is known.
[ -d "$near" ] && real=$(cd "$near" 2>/dev/null && pwd -P) && near=$real
echo "path=$near"
table=$(LC_ALL=C df -Pk "$near") || exit 1
echo "$table" | while read -r system size used free percent mount; do
    case $free in *[!0-9-]*) continue ;; esac
    echo "free=$free"
    echo "mount=$mount"
    while read -r id parent device root point options rest; do
        if [ "$point" != "$mount" ]; then continue; fi
        rest="$rest "
        type=${rest#*- }
        echo "type=${type%% *}"
        echo "options=$options"
    done </proc/self/mountinfo
done 2>/dev/null
LC_ALL=C df -Pi "$near" 2>/dev/null | while read -r system files used free rest; do
    case $files in 0 | *[!0-9]*) continue ;; esac
    echo "free_files=$free"
done
exit 0
"""


def _shell(path: Callable[[Settings], str]) -> Callable[[Settings], str]:
    return lambda settings: f"wanted={shell_path(path(settings))}\n{_SHELL}"


def _parse(output: Output) -> Disk:
    found = output.pairs()
    return Disk(
        path=found["path"],
        exists="exists" in found,
        is_directory="directory" in found,
        writable="writable" in found,
        free=max(0, int(found["free"])) * 1024,
        mount_point=found["mount"],
        type=found.get("type", ""),
        options=tuple(found.get("options", "").split(",")),
        free_files=int(found["free_files"]) if found.get("free_files", "").isdecimal() else None,
    )


DISK = Probe(
    "disk",
    _shell(lambda settings: settings.remote_dir),
    _parse,
    timeout=8,
    about="the file system of remote_dir",
)
