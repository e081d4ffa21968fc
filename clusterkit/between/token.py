"""What one host writes on a shared mount, all others must read: the only proof that it is one file system.

Everything on the mount is done by children with time limits (facts.py): a dead server holds nothing of ours.
"""

from __future__ import annotations

import secrets
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from clusterkit.facts import Facts, Output, Probe, gather
from clusterkit.inventory.model import Settings
from clusterkit.preflight import Doing, Finding
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote

NAME = "shared mount"
# NFS clients look again after at most a minute (acregmax); what takes longer than some seconds confuses jobs.
QUICK_S = 5.0
VISIBLE_WITHIN_S = 30
WRITE_S = 10
_MARGIN_S = 20.0

# busybox has no `sleep 0.1` everywhere, and /proc/uptime has hundredths of a second.
_SEEN = r"""
up() { read -r up _ </proc/uptime; up=${up%%.*}${up##*.}; }
up; began=$up
until %s; do
    up; if [ $((up - began)) -gt %d ]; then exit 3; fi
    sleep 0.1 2>/dev/null || sleep 1
done
up; echo $((up - began))
"""


@dataclass(frozen=True)
class Manner:
    """How many hosts at once, and how long a token may take to be visible, in seconds."""

    forks: int = 64
    visible_within_s: int = VISIBLE_WITHIN_S


def share(
    mounts: Mapping[str, Mapping[str, str]],
    members: Mapping[str, Settings],
    remotes: Mapping[str, Remote],
    doing: Doing,
    cancel: threading.Event,
    manner: Manner | None = None,
) -> tuple[Finding, ...]:
    """For each mounted path and the hosts that have it: a token written by one host is read by all.

    `mounts` is path → host → what is mounted there, for the message. Hosts that do not see the token are
    tried among themselves, so that it is the few that are named, not whoever came first. Every token is
    removed, and gone for all: the path is as it was before, also after an interrupt. Raises Interrupted.
    """
    found: list[Finding] = []
    for path, hosts in mounts.items():
        if len(hosts) > 1:
            path_of = _Path(path, hosts, members, remotes, doing, cancel, manner or Manner())
            found += path_of.prove()
    return tuple(found)


class _Path:
    """One path, and the hosts on which something shared is mounted there."""

    def __init__(
        self,
        path: str,
        sources: Mapping[str, str],
        members: Mapping[str, Settings],
        remotes: Mapping[str, Remote],
        doing: Doing,
        cancel: threading.Event,
        manner: Manner,
    ) -> None:
        self._path = path
        self._sources = sources
        self._members = members
        self._remotes = remotes
        self._doing = doing
        self._cancel = cancel
        self._manner = manner
        self._text = secrets.token_hex(16)
        self._file = shlex.quote(f"{path.rstrip('/')}/.clusterkit-token-{secrets.token_hex(8)}")

    def prove(self) -> list[Finding]:
        """Write, read everywhere, remove, look everywhere; again among those that have seen nothing."""
        found: list[Finding] = []
        groups: list[dict[str, float]] = []
        left = list(self._sources)
        while left:
            writer, failed = self._write(left)
            found += failed
            left = [host for host in left if host not in {each.source for each in failed} | {writer}]
            if writer is None:
                break
            seen, left, broken = self._round(writer, left)
            found += broken
            groups.append({writer: 0.0, **seen})
        return found + self._apart(groups) or [self._visible(groups[0])]

    def _round(
        self, writer: str, readers: Sequence[str]
    ) -> tuple[dict[str, float], list[str], list[Finding]]:
        """Who has seen the writer's token (after how many seconds), who has not, and what else went wrong."""
        try:
            seen, unseen, found = self._look(readers, self._there())
        finally:
            self._remove(writer)
        _, still, failed = self._look(list(seen), self._gone())
        hint = f"mount {self._path} with a shorter acregmax, or without attribute caching (noac)"
        for host in still:
            text = f"{host} still sees what {writer} removed from {self._path} {self._within}"
            found.append(Finding(NAME, "failed", writer, host, text, hint))
        return seen, unseen, found + failed

    @property
    def _within(self) -> str:
        return f"{self._manner.visible_within_s} s ago"

    def _apart(self, groups: Sequence[Mapping[str, float]]) -> list[Finding]:
        """A finding for each host outside the largest group: it is on another file system."""
        most = max(groups, key=len, default={})
        first = next(iter(most), "")
        found = []
        for host in (host for group in groups if group is not most for host in group):
            text = (
                f"{self._path} is {self._sources[host]} on {host} and {self._sources[first]} on {first}: "
                f"what one writes the other does not see ({self._manner.visible_within_s} s)"
            )
            hint = "declare one source for all hosts that share files there"
            found.append(Finding(NAME, "failed", first, host, text, hint))
        return found

    def _visible(self, seen: Mapping[str, float]) -> Finding:
        writer, *readers = seen
        slowest = max(seen, key=lambda host: seen[host])
        longest = seen[slowest]
        others = f"{len(readers)} other{'s'[: len(readers) != 1]}"
        text = f"{self._path}: written by {writer}, read by {others} within {longest:.1f} s"
        if longest <= QUICK_S:
            return Finding(NAME, "ok", writer, "", text)
        hint = "mount with a shorter acregmax, or without attribute caching (noac)"
        return Finding(NAME, "warning", writer, slowest, text, hint)

    def _write(self, hosts: Sequence[str]) -> tuple[str | None, list[Finding]]:
        """The first host that can write; a finding for each one before it that cannot."""
        found: list[Finding] = []
        for host in hosts:
            shell = f"umask 077; printf '%s\\n' {self._text} >{self._file}"
            probe = Probe("token", shell, _nothing, timeout=WRITE_S, about=f"writing a token to {self._path}")
            answers, errors = self._ask([host], probe, f"writing to {self._path}")
            if host in answers:
                return host, found
            hint = f"may this login write there? mount and permissions of {self._path}"
            found.append(Finding(NAME, "failed", host, "", errors[host], hint))
        return None, found

    def _look(
        self, hosts: Sequence[str], condition: str
    ) -> tuple[dict[str, float], list[str], list[Finding]]:
        """After how many seconds the condition was true, where it never was, and where nothing is known."""
        limit = self._manner.visible_within_s
        shell = _SEEN % (condition, limit * 100)
        probe = Probe("token", shell, _hundredths, timeout=limit + 5, about=f"reading {self._path}")
        seen, errors = self._ask(hosts, probe, f"looking for the token on {self._path}")
        unseen = [host for host, why in errors.items() if "exit status 3" in why]
        hint = "does the server answer?"
        failed = [
            Finding(NAME, "failed", host, "", why, hint) for host, why in errors.items() if host not in unseen
        ]
        return seen, unseen, failed

    def _there(self) -> str:
        return f'[ "$(cat {self._file} 2>/dev/null)" = {self._text} ]'

    def _gone(self) -> str:
        return f"[ ! -e {self._file} ]"

    def _remove(self, writer: str) -> None:
        probe = Probe("token", f"rm -f -- {self._file}", _nothing, timeout=WRITE_S)
        # Not cancelled: what we wrote goes, also after an interrupt; its own limit bounds it.
        fan_out({writer: writer}, self._asking(probe), cancel=None)

    def _ask(
        self, hosts: Sequence[str], probe: Probe[float], what: str
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Values, and what went wrong instead."""
        waiting = list(hosts)

        def done(alias: str) -> None:
            waiting.remove(alias)
            self._doing(what, waiting)

        self._doing(what, waiting)
        jobs = {host: host for host in hosts}
        outcome = fan_out(
            jobs, self._asking(probe), forks=self._manner.forks, cancel=self._cancel, on_done=done
        )
        errors = {host: error.message for host, error in outcome.bad.items()}
        values: dict[str, float] = {}
        for host, facts in outcome.good.items():
            failure = facts.failure(probe)
            if failure is None:
                values[host] = facts[probe]
            else:
                errors[host] = failure.message
        return values, errors

    def _asking(self, probe: Probe[float]) -> Callable[[str], Facts]:
        def ask(host: str) -> Facts:
            return gather(
                self._remotes[host], self._members[host], [probe], timeout=probe.timeout + _MARGIN_S
            )

        return ask


def _nothing(output: Output) -> float:
    return 0.0


def _hundredths(output: Output) -> float:
    return int(output.stdout.split()[-1]) / 100
