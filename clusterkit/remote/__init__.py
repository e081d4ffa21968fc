"""Reach a host and run a script on it: over ssh (Fabric, Paramiko) or on this machine.

The one package that knows Fabric and Paramiko; it imports them when a host over ssh is first asked for.
"""

from clusterkit.remote.connections import Connections, connect
from clusterkit.remote.fanout import Outcome, fan_out
from clusterkit.remote.knownhosts import RecordedKey
from clusterkit.remote.options import ConnectOptions, Prompter, Timeouts
from clusterkit.remote.protocol import Remote, Result, Stream
from clusterkit.remote.terminal import terminal_prompter

__all__ = [
    "ConnectOptions",
    "Connections",
    "Outcome",
    "Prompter",
    "RecordedKey",
    "Remote",
    "Result",
    "Stream",
    "Timeouts",
    "connect",
    "fan_out",
    "terminal_prompter",
]
