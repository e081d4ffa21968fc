"""Real throwaway hosts on this Linux machine: `Sandbox.up(SandboxSpec.of(4))`."""

from clusterkit.sandbox.sandbox import HostStatus, Sandbox
from clusterkit.sandbox.spec import Bind, HostSpec, SandboxSpec, User

__all__ = ["Bind", "HostSpec", "HostStatus", "Sandbox", "SandboxSpec", "User"]
