"""Whether the user that a container runs as may write to a mount, asked of the server as that user."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from clusterkit.facts import Output, Probe
from clusterkit.inventory.model import Settings
from clusterkit.probes.storage.asking import CHILDREN, LIMIT_S

_TRY = r"""
if ! command -v setpriv >/dev/null 2>&1; then echo no-setpriv; exit 0; fi
try() {
    [ -n "$(table "$(escape "$1")")" ] || return 0
    stoppable setpriv --reuid "$2" --regid "$3" --clear-groups sh -c '[ -w "$1" ]' sh "$1"
    case $? in 0) echo writable ;; 1) echo refused ;; esac
}
"""


def container_identity(settings: Settings) -> tuple[int, int] | None:
    """The uid and gid that `container_user` means on the host; None where it says nothing of its own there.

    Docker's rule for a number without a group: the group is 0. A name is the image's, except root.
    """
    if settings.container_runtime == "none" or not settings.container_user:
        return None
    user, _, group = settings.container_user.partition(":")
    user, group = (
        "0" if user == "root" else user,
        "0" if group in ("", "root") else group,
    )
    return (int(user), int(group)) if user.isdigit() and group.isdigit() else None


def _shell(settings: Settings) -> str:
    identity = container_identity(settings)
    if identity is None or not settings.mounts:
        return ""
    uid, gid = identity
    asked = [
        f"begin try.{number} try {quote(mount.path)} {uid} {gid}"
        for number, mount in enumerate(settings.mounts)
    ]
    shown = [
        f'if grep -q "^writable$" "$now/try.{number}"; then echo {quote(f"writable {mount.path}")}\n'
        f'elif grep -q "^refused$" "$now/try.{number}"; then echo {quote(f"refused {mount.path}")}; fi'
        for number, mount in enumerate(settings.mounts)
    ]
    return "\n".join([CHILDREN, _TRY, *asked, "collect", *shown, "exit 0"])


def _parse(output: Output) -> Mapping[str, bool] | None:
    lines = output.stdout.splitlines()
    if "no-setpriv" in lines:
        return None
    said = (line.partition(" ") for line in lines)
    return {path: word == "writable" for word, _, path in said}


# By path, None where the host has no setpriv (util-linux) to try it with.
STORAGE_ACCESS = Probe(
    "storage_access",
    _shell,
    _parse,
    timeout=2 * LIMIT_S,
    about="writing as the container's user",
    root=True,
)
