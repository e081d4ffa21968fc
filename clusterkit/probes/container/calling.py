"""The shell text that finds out how the login user calls Docker or Podman, shared by what is asked of it."""

from __future__ import annotations

from shlex import quote

from clusterkit.inventory.model import Settings

# Every container of a run carries it, with the run's id.
RUN_LABEL = "clusterkit.run_id"

# Docker's own words decide, since who may use it is not a matter of groups alone (rootless, ACLs, contexts).
# `answer` has the version; `failed` ends the probe with the last words.
_DOCKER = r"""
client=docker
version() { $as docker version --format '{{.Server.Version}}' 2>&1; }
run_of='{{.Label "'$label'"}}'
"""

# Podman has no daemon that could refuse. What it runs must not inherit our limit for output files.
_PODMAN = r"""
ulimit -S -f "$(ulimit -H -f)" 2>/dev/null
client=podman
version() { $as podman version --format '{{.Client.Version}}' 2>&1; }
run_of='{{index .Labels "'$label'"}}'
"""

_CALL = r"""
# Why a container does not start is not always what the client says last.
last() {
    grep -v -e '^[[:space:]]*$' -e "docker run --help" -e "error waiting for container" |
        tail -n 1 | cut -c 1-400
}
command -v "$client" >/dev/null 2>&1 || { echo missing=yes; exit 0; }
as=
answer=$(version)
status=$?
case $status:$answer in
    0:*) ;;
    *"ermission denied"*)
        echo denied=yes
        if [ "$become" = yes ]; then
            as='sudo -n'
            answer=$(version)
            status=$?
        fi ;;
esac
if [ "$status" != 0 ]; then printf 'failed=%s\n' "$(printf '%s\n' "$answer" | last)"; exit 0; fi
[ -z "$as" ] || echo sudo=yes
"""


def calling(settings: Settings) -> str:
    """Text after which `$as $client` calls a runtime that answers; it ends the script where none does.

    It prints `missing=yes`, `denied=yes`, `failed=WORDS` and `sudo=yes` as they apply.
    """
    client = _PODMAN if settings.container_runtime == "podman" else _DOCKER
    become = "yes" if settings.become else "no"
    return f"become={become}\nimage={quote(settings.image or '')}\nlabel={RUN_LABEL}\n{client}{_CALL}"


def is_used(settings: Settings) -> bool:
    """Whether the host trains in containers."""
    return settings.container_runtime != "none" and settings.image is not None
