"""What the host's own name resolves to: the address that Gloo and Paddle's launcher publish by default."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

from clusterkit.facts import NOT_FOUND, Output, Probe


@dataclass(frozen=True)
class NameFacts:
    """The host's name and its IPv4 addresses; none if it does not resolve, None if nobody could be asked."""

    hostname: str
    addresses: tuple[str, ...] | None

    @property
    def loopback(self) -> bool:
        """True if the name leads to 127.0.0.0/8 first (`127.0.1.1` is what Debian's installer writes)."""
        return bool(self.addresses) and IPv4Address((self.addresses or ("",))[0]).is_loopback


_SHELL = r"""
name=${machine%% *}
echo "$name"
exec getent ahostsv4 "$name"
"""


def _parse(output: Output) -> NameFacts:
    hostname, *answers = output.stdout.splitlines()
    if output.status == NOT_FOUND:
        return NameFacts(hostname, None)
    return NameFacts(hostname, tuple(dict.fromkeys(line.split()[0] for line in answers if line.strip())))


# getent ends with 2 for a name that is not known. A DNS server that is silent takes its time.
NAME = Probe(
    "name", _SHELL, _parse, timeout=8, accepts=(0, 2, NOT_FOUND), about="resolving the host's own name"
)
