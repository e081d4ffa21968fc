"""The shell text that asks about shared storage without ever waiting for it.

What touches a mount or a server runs in a child of its own that writes into a file of its own; when the time
is up, what is in the files by then is the answer. A child in uninterruptible sleep is left to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from shlex import quote

from clusterkit.inventory.model import Mount, Settings
from clusterkit.probes.storage.servers import server_of

LIMIT_S = 5

# `begin FILE COMMAND…` starts a child; `collect` waits for all of them, but no longer than the limit.
CHILDREN = r"""
now=$(mktemp -d /dev/shm/clusterkit-storage-XXXXXX 2>/dev/null || mktemp -d) || exit 1
trap 'rm -rf "$now"' EXIT
escape() { printf '%s' "$1" | sed 's/\\/\\134/g; s/ /\\040/g'; }
table() {
    while read -r id parent device root point rest; do
        if [ "$point" = "$1" ]; then echo "table $id $parent $device $root $point $rest"; fi
    done </proc/self/mountinfo
}
stoppable() { if command -v timeout >/dev/null 2>&1; then timeout -s KILL @LIMIT@ "$@"; else "$@"; fi; }
children=
begin() {
    file=$1; shift
    ( "$@"; echo done ) >"$now/$file" 2>"$now/$file.error" &
    children="$children $file:$!"
}
collect() {
    rounds=@LIMIT@0
    while [ -n "$children" ] && [ "$rounds" -gt 0 ]; do
        still=
        for child in $children; do
            grep -qs '^done$' "$now/${child%%:*}" || still="$still $child"
        done
        children=$still
        if [ -n "$children" ]; then sleep 0.1 2>/dev/null || { sleep 1; rounds=$((rounds - 9)); }; fi
        rounds=$((rounds - 1))
    done
    for child in $children; do kill -KILL "${child##*:}" 2>/dev/null; done
}
answer() {
    sed "s/^/$1 /" "$now/$2"
    if [ -s "$now/$2.error" ]; then echo "$1 error $(tail -n 1 "$now/$2.error")"; fi
}
""".replace("@LIMIT@", str(LIMIT_S))

# A mount point is known from the kernel's table, which never hangs; only then is it touched.
_LOOK = r"""
look() {
    at=$1
    if [ -z "$(table "$(escape "$at")")" ]; then
        if [ -e "$at" ] || [ -L "$at" ]; then echo exists; fi
        if [ -d "$at" ]; then echo directory; real=$(cd "$at" 2>/dev/null && pwd -P) && at=$real; fi
        near=$1
        while [ ! -e "$near" ] && [ -n "$near" ]; do echo missing; near=${near%/*}; done
    fi
    echo "at $at"
    case $2 in
    UUID=*|LABEL=*|PARTUUID=*|PARTLABEL=*)
        by=$(echo "${2%%=*}" | tr '[:upper:]' '[:lower:]')
        echo "device $(readlink -f "/dev/disk/by-$by/${2#*=}")" ;;
    /dev/*) echo "device $(readlink -f "$2")" ;;
    esac
    escaped=$(escape "$at")
    table "$escaped"
    if [ -n "$(table "$escaped")" ]; then
        LC_ALL=C stoppable stat -f -c 'room %S %b %a %c %d' "$at" || {
            ended=$?
            # From 124 on it is the time limit that speaks, not the server.
            if [ "$ended" -lt 124 ]; then echo refused; fi
            return 0
        }
        table "$escaped"
        if [ -w "$at" ]; then echo writable; fi
        if [ "$2" -ef "$at" ]; then echo same; fi
    elif [ -d "$at" ] && [ -n "$(ls -A "$at" | head -n 1)" ]; then
        echo full
    fi
}
addresses() { getent ahosts "$1" | while read -r address rest; do echo "$2 $address"; done | sort -u; }
resolve() {
    if [ -n "$2" ]; then addresses "$2" declared; fi
    source=$(table "$(escape "$1")" | tail -n 1)
    source=${source##* - }; source=${source#* }; source=${source%% *}; source=${source%%:/*}
    if [ -n "$source" ] && [ "$source" != "$2" ]; then addresses "$source" mounted; fi
}
"""

# A null call of ONC RPC (RFC 5531): a length, ten words. A server that is alive answers it.
_REACH = r"""
reach() {
    command -v bash >/dev/null 2>&1 || return 0
    stoppable bash -c '
        if ! getent ahosts "$0" >/dev/null; then echo "server nameless"; exit; fi
        echo "server connecting"
        exec 3<>"/dev/tcp/$0/$1" || exit
        echo "server connected"
        [ "$2" != 0 ] || exit
        zeros="\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
        printf "\200\0\0\050ckit\0\0\0\0\0\0\0\002\0\001\206\243\0\0\0\00$2$zeros" >&3
        answer=$(head -c 28 <&3 | od -An -v -tx1 | tr -d " \n")
        [ -z "$answer" ] || echo "server answered $answer"
    ' "$1" "$2" "$3"
}
"""

_FSTAB = r"""
if [ ! -e /etc/fstab ]; then echo fstab-missing
elif [ -r /etc/fstab ]; then
    sed 's/^/fstab /' /etc/fstab; echo
    if [ -n "$(tail -c 1 /etc/fstab)" ]; then echo fstab-without-newline; fi
else echo fstab-unreadable; fi
"""

_HOST = r"""
for manager in apt-get dnf yum zypper; do
    if command -v "$manager" >/dev/null 2>&1; then echo "manager $manager"; break; fi
done
if [ -e /dev/nvidiactl ] && grep -qsE \
    '(docker|libpod|crio|cri-containerd)[-/][0-9a-f]{12}|kubepods' /proc/[0-9]*/cgroup; then
    echo gpu-containers
fi
"""


def shell(settings: Settings) -> str:
    """Everything about the declared mounts; /etc/fstab whatever is declared."""
    if not settings.mounts:
        return f"{_FSTAB}exit 0\n"
    begun = _each(settings.mounts, _begin)
    shown = _each(settings.mounts, _show)
    programs = [_program(kind) for kind in dict.fromkeys(mount.type for mount in settings.mounts)]
    parts = [CHILDREN, _LOOK, _REACH, *begun, _FSTAB, *programs, _HOST, "collect", *shown, "exit 0"]
    return "\n".join(parts)


def _each(mounts: Sequence[Mount], lines: Callable[[int, Mount], Sequence[str]]) -> list[str]:
    return [line for number, mount in enumerate(mounts) for line in lines(number, mount)]


def _begin(number: int, mount: Mount) -> list[str]:
    server = server_of(mount)
    path, host = quote(mount.path), quote(server.host if server else "")
    lines = [
        f"begin look.{number} look {path} {quote(mount.source)}",
        f"begin resolve.{number} resolve {path} {host}",
    ]
    if server:
        lines.append(f"begin reach.{number} reach {host} {server.port} {server.nfs}")
    return lines


def _show(number: int, mount: Mount) -> list[str]:
    kinds = ("look", "resolve", *(("reach",) if server_of(mount) else ()))
    return [
        f"echo {quote(f'{number} path {mount.path}')}",
        *(f"answer '{number} {kind}' {kind}.{number}" for kind in kinds),
    ]


def _program(kind: str) -> str:
    """Where mount(8) looks for the program of a type."""
    places = " ".join(f"{folder}/mount.{quote(kind)}" for folder in ("/sbin", "/usr/sbin", "/usr/local/sbin"))
    return f'for file in {places}; do if [ -x "$file" ]; then echo program {quote(kind)}; break; fi; done'
