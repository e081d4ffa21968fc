"""Who we are on the host, and which machine it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clusterkit.facts import Output, Probe


@dataclass(frozen=True)
class HostFacts:
    """The login user, with all its groups, and the machine; "" for a `machine_id` or `zone` that it lacks."""

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
    groups: tuple[int, ...] = ()
    zone: str = ""


# `id` gives a name only where the system knows one.
_SHELL = r"""
uid=${who#uid=}; uid=${uid%%[!0-9]*}; user=$uid
gid=${who#*gid=}; gid=${gid%%[!0-9]*}
case ${who%% gid=*} in *'('*')') user=${who%% gid=*}; user=${user#*'('}; user=${user%')'} ;; esac
echo "uid=$uid"
echo "gid=$gid"
echo "groups=${who#*groups=}"
echo "user=$user"
echo "home=$HOME"
kernel=${machine#* }
echo "hostname=${machine%% *}"
echo "kernel=${kernel% *}"
echo "architecture=${machine##* }"
for file in /etc/machine-id /var/lib/dbus/machine-id; do
    if { read -r id <"$file"; } 2>/dev/null; then echo "machine_id=$id"; break; fi
done
if { read -r id </proc/sys/kernel/random/boot_id; } 2>/dev/null; then echo "boot_id=$id"; fi
if [ -L /etc/localtime ]; then echo "zone=$(readlink /etc/localtime)"; fi
while read -r line; do
    case $line in PRETTY_NAME=*) echo "$line" ;; esac
done 2>/dev/null </etc/os-release
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
        groups=_numbers(found.get("groups", "")),
        zone=_zone(found.get("zone", "")),
    )


def _zone(link: str) -> str:
    """Of `../usr/share/zoneinfo/Etc/UTC`: the zone's name, the same for all names of UTC."""
    name = link.partition("zoneinfo/")[2]
    return "UTC" if name.rpartition("/")[2] in ("UTC", "UCT", "Universal", "Zulu") else name


def _numbers(groups: str) -> tuple[int, ...]:
    """Of `1000(train),513(domain users) context=…`."""
    listed = groups.partition(" context=")[0]
    return tuple(int(number) for number in re.findall(r"(?:^|,)(\d+)(?=\(|,|$)", listed))


HOST = Probe("host", _SHELL, _parse, about="user and machine")
