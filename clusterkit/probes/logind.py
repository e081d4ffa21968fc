"""Whether logind ends what a user has started once the user has logged out."""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.facts import NOT_FOUND, Output, Probe

# Ours: what preflight writes, and reset takes away.
DROP_IN = "/etc/systemd/logind.conf.d/60-clusterkit.conf"


@dataclass(frozen=True)
class LogindFacts:
    """`kills` says that processes of this login end with its session; `drop_in` that our file is there.

    `own_folder` says that we made the folder of our file too.
    """

    kills: bool
    drop_in: bool
    own_folder: bool


# logind's rule: all sessions end with their processes, but not those of the users that are excluded, and only
# those of certain users if any are named.
_SHELL = rf"""
user=${{who%% *}}; user=${{user#*'('}}
echo "user=${{user%')'}}"
if [ -e {DROP_IN} ]; then echo drop_in=yes; grep -s '^# folder: ' {DROP_IN}; fi
exec loginctl show-session -p KillUserProcesses -p KillOnlyUsers -p KillExcludeUsers
"""


def _parse(output: Output) -> LogindFacts:
    found = output.pairs()
    user = found["user"]
    only, excluded = found.get("KillOnlyUsers", "").split(), found.get("KillExcludeUsers", "root").split()
    kills = found.get("KillUserProcesses") == "yes" and user not in excluded and (not only or user in only)
    return LogindFacts(kills, "drop_in" in found, "# folder: made by clusterkit" in output.stdout)


# Without a running logind, `loginctl` ends with 1: nothing is there that could end a process.
LOGIND = Probe("logind", _SHELL, _parse, accepts=(0, 1, NOT_FOUND), about="logind")
