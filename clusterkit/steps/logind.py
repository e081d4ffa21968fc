"""A run outlives the login that started it."""

from __future__ import annotations

import shlex

from clusterkit.probes import HOST
from clusterkit.probes.logind import DROP_IN, LOGIND
from clusterkit.steps.engine import LAUNCH, Change, Fleet, State, Step

_FOLDER = DROP_IN.rpartition("/")[0]
_RELOAD = "systemctl kill -s HUP systemd-logind.service"


class OutlivesLogin(Step):
    """logind does not end the processes of a login that is over: it would end a detached run.

    Lingering does not help, it keeps the user's own services only. So the user is excluded from the rule.
    """

    name = "detached runs"
    tags = frozenset({LAUNCH})
    probes = (LOGIND, HOST)

    def skip(self, host: str, fleet: Fleet) -> str:
        """A container is no part of the login."""
        return "containers outlive the login" if fleet.members[host].container_runtime != "none" else ""

    def desired(self, host: str, fleet: Fleet) -> State:
        """They live on."""
        return {"killed_at_logout": False}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What logind says of itself: KillUserProcesses, KillOnlyUsers, KillExcludeUsers."""
        return {"killed_at_logout": fleet.facts[host][LOGIND].kills}

    def fix(self, change: Change) -> list[str]:
        """A file of ours that excludes the login user; logind reads it without ending any session."""
        user = shlex.quote(f"KillExcludeUsers=root {change.facts[HOST].user}")
        return [
            "folder='was there'",
            f"[ -d {_FOLDER} ] || {{ mkdir -p {_FOLDER}; folder='made by clusterkit'; }}",
            f"printf '%s\\n' '# clusterkit: runs outlive the login that started them' \"# folder: $folder\" "
            f"'[Login]' {user} >{DROP_IN}",
            f"chmod 644 {DROP_IN}",
            _RELOAD,
        ]

    def undo(self, host: str, fleet: Fleet) -> list[str]:
        """Without our file, and without its folder where we made it."""
        logind = fleet.facts[host].get(LOGIND)
        if not logind or not logind.drop_in:
            return []
        folder = [f"rmdir {_FOLDER} 2>/dev/null || true"] if logind.own_folder else []
        return [f"rm -f {DROP_IN}", *folder, _RELOAD]

    def explain(self, change: Change) -> str:
        user = change.facts[HOST].user
        return (
            f"logind ends the processes of {user} at logout (KillUserProcesses=yes): a detached run would die"
        )

    def hint(self, change: Change) -> str:
        return f"preflight excludes {change.facts[HOST].user} in {DROP_IN}"
