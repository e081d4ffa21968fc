"""Who we are on the host, and which machine it is."""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.facts import Output, Probe


@dataclass(frozen=True)
class HostFacts:
    """The login user and the machine. `machine_id` is "" where the host has none."""

    uid: int
    gid: int
    user: str
    home: str
    hostname: str
    kernel: str
    architecture: str
    os: str
    machine_id: str
    boot_id: str


_SHELL = r"""
echo "uid=$(id -u)"
echo "gid=$(id -g)"
echo "user=$(id -un 2>/dev/null || id -u)"
echo "home=$HOME"
echo "hostname=$(uname -n)"
echo "kernel=$(uname -r)"
echo "architecture=$(uname -m)"
for file in /etc/machine-id /var/lib/dbus/machine-id; do
    if { read -r id <"$file"; } 2>/dev/null; then echo "machine_id=$id"; break; fi
done
if { read -r id </proc/sys/kernel/random/boot_id; } 2>/dev/null; then echo "boot_id=$id"; fi
grep '^PRETTY_NAME=' /etc/os-release 2>/dev/null
exit 0
"""


def _parse(output: Output) -> HostFacts:
    found = output.pairs()
    return HostFacts(
        uid=int(found["uid"]),
        gid=int(found["gid"]),
        user=found["user"],
        home=found["home"],
        hostname=found["hostname"],
        kernel=found["kernel"],
        architecture=found["architecture"],
        os=found.get("PRETTY_NAME", "").strip("\"'"),
        machine_id=found.get("machine_id", ""),
        boot_id=found.get("boot_id", ""),
    )


HOST = Probe("host", _SHELL, _parse, about="user and machine")
