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
