"""What the inventory permits as root can be done as root."""

from __future__ import annotations

from clusterkit.probes import HOST
from clusterkit.probes.root import ROOT
from clusterkit.steps.engine import Change, Fleet, Severity, State, Step


class Sudo(Step):
    """sudo gives root without a question, or with the password that is known."""

    name = "sudo"
    probes = (HOST, ROOT)

    def skip(self, host: str, fleet: Fleet) -> str:
        """Root needs none, and without permission none is used."""
        if fleet.facts[host][HOST].uid == 0:
            return "the login user is root"
        return "" if fleet.members[host].become else "ansible_become is not set, so nothing is done as root"

    def desired(self, host: str, fleet: Fleet) -> State:
        """Root."""
        return {"root": True}

    def actual(self, host: str, fleet: Fleet) -> State:
        """What `sudo -n` gave, and then sudo with the password that is known."""
        return {"root": fleet.facts[host].failure(ROOT) is None}

    def severity(self, change: Change) -> Severity:
        """Somebody has to give the password or the right."""
        return "manual"

    def explain(self, change: Change) -> str:
        refusal = change.facts.failure(ROOT)
        if refusal and refusal.hint:
            return refusal.message.removeprefix(f"{ROOT.about}: ")
        return f"sudo does not let {change.facts[HOST].user} become root without a password"

    def hint(self, change: Change) -> str:
        refusal, user = change.facts.failure(ROOT), change.facts[HOST].user
        if refusal and refusal.hint:
            return refusal.hint
        return f"use --ask-become-pass, or let `{user} ALL=(ALL) NOPASSWD: ALL` into /etc/sudoers.d/"
