"""A file written, read back and removed on every shared mount: by the login, and by the container's user.

Whether they may has been asked before (steps/storage/writing.py); what only shows in doing it, such as a full
quota, a server without room or a stale handle, shows here. In children with time limits, as all on a mount.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from shlex import join, quote

from clusterkit.facts import TIMED_OUT, Facts, Output, Probe, gather
from clusterkit.preflight import Doing, Finding
from clusterkit.probes.storage.access import STORAGE_ACCESS, container_identity
from clusterkit.remote import fan_out
from clusterkit.remote.protocol import Remote
from clusterkit.steps import Fleet

NAME = "write test"
WRITE_S = 10
_MARGIN_S = 20.0

# `tee`, since dash calls every failed write an "I/O error".
_TRY = r"""
umask 077
trap 'rm -f -- "$1"' EXIT
printf '%s\n' "$2" | tee -- "$1" >/dev/null || exit 1
[ "$(cat "$1")" = "$2" ] || { echo "what was read back is not what was written" >&2; exit 1; }
"""


def write(
    mounts: Mapping[str, Mapping[str, str]],
    fleet: Fleet,
    remotes: Mapping[str, Remote],
    doing: Doing,
    cancel: threading.Event,
    forks: int = 64,
) -> tuple[Finding, ...]:
    """For each path a finding that it can be written, or one for each host where not. Raises Interrupted.

    `mounts` is path → host → what is mounted there. Nothing is left on any mount, if its server answers.
    """
    hosts = list(dict.fromkeys(host for of_path in mounts.values() for host in of_path))
    asked = {host: _probes(host, fleet, [path for path in mounts if host in mounts[path]]) for host in hosts}
    answers = _ask(asked, fleet, remotes, doing, cancel, forks)
    found: list[Finding] = []
    for path, of_path in mounts.items():
        wrong = [
            finding for host in of_path for finding in _wrong(host, path, asked[host], answers.get(host))
        ]
        done = f"{path}: written, read back and removed on {len(of_path)} host{'s'[: len(of_path) != 1]}"
        found += wrong or [Finding(NAME, "ok", detail=done)]
    return tuple(found)


# Path and who writes → the question.
_Asked = Mapping[tuple[str, str], Probe[bool]]


def _probes(host: str, fleet: Fleet, paths: Sequence[str]) -> _Asked:
    found: dict[tuple[str, str], Probe[bool]] = {}
    identity = container_identity(fleet.members[host])
    may = fleet.facts[host].get(STORAGE_ACCESS) or {}
    for number, path in enumerate(paths):
        words = [
            "sh",
            "-c",
            _TRY,
            "sh",
            f"{path}/.clusterkit-write-{secrets.token_hex(8)}",
            secrets.token_hex(8),
        ]
        found[path, "this login"] = Probe(f"write_{number}", join(words), _done, timeout=WRITE_S)
        if identity is not None and may.get(path):
            uid, gid = identity
            words[4] += "-container"
            shell = f"setpriv --reuid {uid} --regid {gid} --clear-groups {join(words)}"
            who = f"the container's user {uid}:{gid}"
            found[path, who] = Probe(f"write_{number}_container", shell, _done, timeout=WRITE_S, root=True)
    return found


def _ask(
    asked: Mapping[str, _Asked],
    fleet: Fleet,
    remotes: Mapping[str, Remote],
    doing: Doing,
    cancel: threading.Event,
    forks: int,
) -> Mapping[str, Facts | str]:
    """Each host's answers, or why there are none."""
    waiting = list(asked)

    def done(alias: str) -> None:
        waiting.remove(alias)
        doing("writing to the shared storage", waiting)

    def one(alias: str) -> Facts:
        probes = list(asked[alias].values())
        return gather(remotes[alias], fleet.members[alias], probes, timeout=WRITE_S + _MARGIN_S)

    outcome = fan_out({alias: alias for alias in asked}, one, forks=forks, cancel=cancel, on_done=done)
    return {**outcome.good, **{alias: error.message for alias, error in outcome.bad.items()}}


def _wrong(host: str, path: str, asked: _Asked, answer: Facts | str | None) -> list[Finding]:
    if not isinstance(answer, Facts):
        return [Finding(NAME, "unknown", host, "", answer or f"{host} was not asked")]
    found = []
    for (of_path, who), probe in asked.items():
        failure = answer.failure(probe) if of_path == path else None
        if failure is not None:
            why = failure.message.partition(": ")[2]
            silent = failure.status == TIMED_OUT
            text = f"{who} cannot write to {path} on {host}: {why.rpartition(': ')[2] or why}"
            hint = "does the server answer?" if silent else _hint(path, why)
            found.append(Finding(NAME, "failed", host, "", text, hint))
    return found


def _hint(path: str, why: str) -> str:
    if "denied" in why or "not permitted" in why:
        return f"who may write there: ls -ldn {quote(path)}; root_squash on the server makes nobody of root"
    return f"look at quota and free space: df -h {quote(path)}"


def _done(output: Output) -> bool:
    return True
