"""Who blocks a connection: the firewall's facts may know the host and the rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clusterkit.inventory.model import PortRange


@dataclass(frozen=True)
class Blocked:
    """A TCP connection that does not come about, from the address of one host to a port of another."""

    source: str
    source_ip: str
    to: str
    to_ip: str
    port: int


# The host and the rule that block it, in words ("gpu02: nft chain inet filter input drops by policy"). "" if
# the rules of both hosts are known and none of them blocks; None where nobody can tell.
Blame = Callable[[Blocked], str | None]


def nobody_knows(blocked: Blocked) -> str | None:
    """The blame where no firewall was read."""
    return None


@dataclass(frozen=True)
class Needed:
    """What must be open on every node: the job's ports, and those that the kernel gives out."""

    job: PortRange
    ephemeral: PortRange

    def __str__(self) -> str:
        return f"TCP {self.job} and {self.ephemeral}"
