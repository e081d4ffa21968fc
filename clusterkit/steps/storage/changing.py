"""The shell lines that mount, write /etc/fstab, and take both back; for root (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shlex import join, quote

from clusterkit.inventory.model import Mount
from clusterkit.probes.storage import FstabLine
from clusterkit.probes.storage.tables import escape
from clusterkit.steps.storage.fstab import Marks, marks, written

# The server answered a moment ago; a kernel that asks it again for two minutes is not waited for.
MOUNT_LIMIT_S = 60


def directories(path: str, count: int) -> list[str]:
    """The last `count` directories of the path, the deepest first."""
    found: list[str] = []
    while path and len(found) < count:
        found.append(path)
        path = path.rpartition("/")[0]
    return found


def mount(wanted: Mount, missing: int, *, inside: bool) -> list[str]:
    """Mounted, in a directory that is made where it is missing; if that fails nothing is left.

    `inside`: the directory lies on another declared mount, where it is not this host's alone, and stays.
    """
    arguments = [
        "-t",
        wanted.type,
        *(("-o", wanted.options) if wanted.options else ()),
        wanted.source,
        wanted.path,
    ]
    command = f"timeout -s KILL {MOUNT_LIMIT_S} mount {join(arguments)}"
    make = [f"mkdir -p {quote(wanted.path)}"] if missing or inside else []
    if not missing or inside:
        return [*make, command]
    remove = join(["rmdir", *directories(wanted.path, missing)])
    return [*make, f"{command} || {{ {remove}; exit 1; }}"]


# A file beside it, renamed: nobody ever reads half of /etc/fstab. `cat` in a substitution drops the newline
# that we had to add before our line.
_SWAP = r"""
swap() {
    number=$(grep -nxF -e "$1" "$fstab" | head -n 1 | cut -d: -f1)
    if [ -z "$number" ]; then return 0; fi
    cp -a "$fstab" "$fstab.clusterkit"
    {
        head -n "$((number - 1))" "$fstab"
        if [ -n "$2" ]; then printf '%s\n' "$2"; fi
        tail -n "+$((number + 1))" "$fstab"
    } >"$fstab.clusterkit"
    if [ "$3" = newline ] && [ "$(wc -l <"$fstab.clusterkit")" -lt "$number" ]; then
        kept=$(cat "$fstab.clusterkit")
        printf '%s' "$kept" >"$fstab.clusterkit"
    fi
    mv -f "$fstab.clusterkit" "$fstab"
}
fstab=$(readlink -f /etc/fstab)
""".strip()


def remember(wanted: Mount, marked: Marks) -> list[str]:
    """/etc/fstab has our line at its end."""
    newline = "echo >>/etc/fstab; " if marked.newline else ""
    return [f"{newline}printf '%s\\n' {quote(written(wanted, marked))} >>/etc/fstab"]


def correct(old: FstabLine, wanted: Mount, missing: int) -> list[str]:
    """Our line says what is declared now, and still how it came about."""
    old_marks = marks(old)
    new = written(wanted, replace(old_marks, made=old_marks.made or missing))
    return [_SWAP, f"swap {quote(old.text)} {quote(new)} -"]


# Everything that touches the mount runs in a child that is given up if it hangs, and writes into a file.
_UNMOUNT = r"""
limited() {
    left=$(($1 * 10)); shift
    said=$(mktemp -d)
    ( ended=0; "$@" >"$said/out" 2>&1 || ended=$?; echo "$ended" >"$said/ended" ) &
    while [ ! -s "$said/ended" ] && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
    ended=124
    if [ -s "$said/ended" ]; then read -r ended <"$said/ended"; else kill -KILL "$!" || :; fi
    words=$(tail -n 1 "$said/out")
    rm -rf "$said"
    return "$ended"
}
is_mounted() {
    while read -r id parent device root point rest; do
        if [ "$point" = "$1" ]; then return 0; fi
    done </proc/self/mountinfo
    return 1
}
users() {
    {
        find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/exe /proc/[0-9]*/fd -maxdepth 1 \
            '(' -lname "$1" -o -lname "$1/*" ')' | cut -d/ -f3
        grep -slF " $1/" /proc/[0-9]*/maps | cut -d/ -f3
    } 2>/dev/null | sort -un | head -n 5 | while read -r pid; do
        if read -r name <"/proc/$pid/comm"; then printf ', %s (pid %s)' "$name" "$pid"; fi
    done 2>/dev/null
}
unmount() {
    if ! limited 5 stat -f "$1"; then
        echo "$1 stays mounted: its server does not answer, and unmounting would hang until it does"
        return 1
    fi
    limited 30 umount "$1" || :
    if ! is_mounted "$2"; then return 0; fi
    holders=$(users "$1")
    if [ -n "$holders" ]; then echo "$1 stays mounted: it is in use by ${holders#, }"
    else echo "$1 stays mounted: ${words:-unmounting takes longer than 30 s}"; fi
    return 1
}
failed=
trap 'if [ -n "$failed" ]; then exit 1; fi' EXIT
take_back() {
    path=$1; line=$2; newline=$3; point=$4; shift 4
    if [ -n "$point" ] && is_mounted "$point" && ! unmount "$path" "$point"; then failed=yes; return 0; fi
    swap "$line" '' "$newline"
    for directory in "$@"; do rmdir "$directory" 2>/dev/null || :; done
}
""".strip()


def take_back(lines: Sequence[FstabLine]) -> list[str]:
    """Unmounted what we mounted, our lines gone, the directories that we made removed; the last mount first.

    A mount that cannot be unmounted keeps its line, so that this can be repeated; the others go.
    """
    if not lines:
        return []
    # The newest first: then what lies inside another mount comes before it, and the newline comes out right.
    newest_first = [_taken_back(line) for line in reversed(lines)]
    return ["\n".join([_SWAP, _UNMOUNT]), *newest_first]


def _taken_back(line: FstabLine) -> str:
    marked = marks(line)
    newline = "newline" if marked.newline else "-"
    point = "" if marked.found else escape(line.path, fstab=False)
    made = directories(line.path, marked.made)
    return join(["take_back", line.path, line.text, newline, point, *made])
