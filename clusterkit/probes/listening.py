"""TCP ports that something listens on, and what that is where we may see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import Settings


@dataclass(frozen=True)
class Listening:
    """Ports in use on any address of the host, each with the uid of its owner; `owners` as "name, pid 12"."""

    ports: Mapping[int, int]
    owners: Mapping[int, str]

    def described(self, port: int) -> str:
        """Who holds the port, as far as the login user may know."""
        return self.owners.get(port) or f"a process of uid {self.ports[port]}"


# The kernel's table says it all but the process; `ss` adds the processes that we may look into. It looks
# through the open files of every process for that, so only where a port lies in the job's range.
_SHELL = r"""
sockets=$(grep -hs '^ *[0-9]*: [0-9A-F]*:[0-9A-F]* [0-9A-F]*:[0-9A-F]* 0A ' /proc/net/tcp /proc/net/tcp6)
echo "$sockets"
echo "$sockets" | while read -r number address rest; do
    port=$((0x${address##*:}))
    if [ "$port" -ge "$first" ] && [ "$port" -le "$last" ]; then LC_ALL=C ss -ltnp 2>/dev/null; break; fi
done
exit 0
"""


def _shell(settings: Settings) -> str:
    ports = settings.port_range
    return f"first={ports.first}\nlast={ports.last}\n{_SHELL}"


_SOCKET = re.compile(
    r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F:]+ 0A [0-9A-F:]+ [0-9A-F:]+ [0-9A-F]+ +(\d+)", re.MULTILINE
)
_OWNER = re.compile(r'^LISTEN .*?:(\d+) +\S+ +users:\(\("([^"]*)",pid=(\d+)', re.MULTILINE)


def _parse(output: Output) -> Listening:
    return Listening(
        {int(port, 16): int(uid) for port, uid in _SOCKET.findall(output.stdout)},
        {int(port): f"{name}, pid {pid}" for port, name, pid in _OWNER.findall(output.stdout)},
    )


LISTENING = Probe("listening", _shell, _parse, about="listening ports")
