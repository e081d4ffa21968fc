"""Steps' lines as one script, and what became of each step, read back from its frames."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Applied:
    """How each step's lines ended on one host: "" if well, else their last words; `error` if none ran."""

    steps: Mapping[str, str]
    error: str = ""

    def words(self, name: str) -> str:
        """Why a step's lines failed; "" if they did not."""
        return self.error or self.steps.get(name, "")


def script(changes: Sequence[tuple[str, Sequence[str]]], token: str) -> str:
    """A POSIX script that runs each step's lines in a shell of its own, ended by the first that fails."""
    parts = [f"token={shlex.quote(token)}\nnow=$(mktemp) || exit 1\ntrap 'rm -f \"$now\"' EXIT"]
    for number, (_, lines) in enumerate(changes):
        text = "\n".join(["set -eu", *lines])
        parts += [
            f'sh -c {shlex.quote(text)} </dev/null >"$now" 2>&1',
            'status=$?; said=$(tail -c 600 "$now" | base64 | tr -d "\\n")',
            f'printf "\\n%s step {number} %s %s\\n" "$token" "$status" "$said"',
        ]
    return "\n".join([*parts, ""])


# Output goes to a file as above. The directory vanishes with the one that watches: what runs on then is lost.
_WATCHED = r"""
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
trap 'exit 143' HUP INT PIPE TERM
{ sh -c "$lines" </dev/null >"$here/said" 2>&1; echo $? >"$here/status"; } >/dev/null 2>&1 &
pause=0.2
while [ ! -s "$here/status" ]; do
    sleep $pause 2>/dev/null || sleep 1
    pause=0.5
    now=$(sh -c "$progress" <"$here/said" | tail -n 1 | tail -c 200 | base64 | tr -d "\n")
    printf "\n%s now %s\n" "$token" "$now"
done
read -r status <"$here/status"
printf "\n%s step 0 %s %s\n" "$token" "$status" "$(tail -c 600 "$here/said" | base64 | tr -d "\n")"
"""


def watched(lines: Sequence[str], progress: str, token: str) -> str:
    """A script as `script` makes, for one step, that tells every half a second how far its lines are."""
    text = "\n".join(["set -eu", *lines])
    head = f"token={shlex.quote(token)}\nlines={shlex.quote(text)}\nprogress={shlex.quote(progress)}"
    return f"exec sh -c {shlex.quote(head + _WATCHED)}\n"


def progress(line: str, token: str) -> str:
    """What a line of `watched`'s output says about how far it is; "" if it says nothing of it."""
    match = re.fullmatch(rf"{re.escape(token)} now (\S+)", line)
    return base64.b64decode(match[1]).decode("utf-8", "replace").strip() if match else ""


def outcome(text: str, token: str, names: Sequence[str]) -> dict[str, str]:
    """For each step "" if its lines ended well, else their last words."""
    pattern = re.compile(rf"^{re.escape(token)} step (\d+) (\d+) ?(\S*)$", re.MULTILINE)
    found = {int(match[1]): (int(match[2]), match[3]) for match in pattern.finditer(text)}
    return {name: _words(*found.get(number, (1, ""))) for number, name in enumerate(names)}


def _words(status: int, encoded: str) -> str:
    if status == 0:
        return ""
    lines = base64.b64decode(encoded).decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else f"its commands ended with status {status}"
