"""Where a sandbox can work: Linux, root, the programs that it uses, and overlay file systems."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from clusterkit.errors import ClusterkitError
from clusterkit.sandbox.spec import SandboxSpec

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = {
    "ip": "iproute2",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "umount": "mount",
}


def check(spec: SandboxSpec | None = None) -> None:
    """Returns where a sandbox can be made on this machine; else ClusterkitError with the remedy."""
    if sys.platform != "linux":
        raise ClusterkitError(
            f"a sandbox needs Linux namespaces, and this machine runs {sys.platform}",
            "run it on a Linux machine or in a Linux virtual machine",
        )
    if os.geteuid() != 0:
        raise ClusterkitError(
            "a sandbox needs root: it makes network and mount namespaces",
            "run the same command with sudo, or as root",
        )
    _check_programs(spec)
    _check_overlay()


def _check_programs(spec: SandboxSpec | None) -> None:
    wanted = dict(PACKAGES)
    if spec is not None and any(host.user and host.user.sudo != "none" for host in spec.hosts):
        wanted["sudo"] = "sudo"
    missing = [program for program in wanted if find(program) is None]
    if missing:
        packages = sorted({wanted[program] for program in missing})
        raise ClusterkitError(
            f"a sandbox needs {', '.join(missing)}, which this machine does not have",
            f"on Debian: apt-get install {' '.join(packages)}",
        )


def _check_overlay() -> None:
    filesystems = Path("/proc/filesystems").read_text()
    if "\toverlay\n" in filesystems:
        return
    modprobe = find("modprobe")
    if modprobe is not None and os.system(f"{modprobe} -q overlay") == 0:
        return
    raise ClusterkitError(
        "a sandbox needs overlay file systems, and this kernel has none (see /proc/filesystems)",
        "load the kernel module `overlay`, or use another machine",
    )


def find(program: str) -> str | None:
    """Where a program is, also in /usr/sbin, which a user's PATH often leaves out."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")


def path_of(program: str) -> str:
    """As `find`, for programs that `check` has demanded."""
    found = find(program)
    if found is None:
        package = PACKAGES.get(program, program)
        raise ClusterkitError(f"`{program}` is not installed", f"on Debian: apt-get install {package}")
    return found
