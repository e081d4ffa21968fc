"""What is written to `sh -s`, and how its answer is told from everything else that the host prints.

A random token marks the beginning and the end of what the script wrote, on stdout and on stderr. What came
before is a banner or a noisy profile, what comes after a logout file; neither is the script's.

Each text here ends with its only newline outside quotes: a shell has read all of it before it runs any of it.
"""

from __future__ import annotations

import secrets
import shlex
from dataclasses import dataclass, field


def new_token() -> str:
    """Text that nothing else on the host will print."""
    return f"ck{secrets.token_hex(16)}"


def run_text(token: str, script: str) -> bytes:
    """Runs `script` with an empty stdin; its status is in the end mark."""
    return (
        f"{_begin(token)}(eval {_word(script)}) </dev/null; ck_status=$?; "
        f"printf '%s:end:%s\\n' {token} $ck_status; printf '%s:end\\n' {token} >&2; exit $ck_status\n"
    ).encode()


def open_text(token: str, script: str) -> bytes:
    """Runs `script`, which becomes its program by `exec`; if it fails before, nothing more is read."""
    return f"{_begin(token)}eval {_word(script)}; exit $?\n".encode()


def _begin(token: str) -> str:
    return f"printf '%s:begin:%s\\n' {token} $$; printf '%s:begin\\n' {token} >&2; "


def _word(script: str) -> str:
    """One shell word, however long (`eval` has no limit); after a newline, a leading `-` is no option."""
    return shlex.quote("\n" + script)


def sudo_text(token: str, user: str, *, has_password: bool) -> bytes:
    """Becomes `user`'s `sh -s`: without a password if sudo allows it, else by the one sent after the mark."""
    inner = f"sh -c {shlex.quote(f'printf %s {token}:inner; exec sh -s')}"
    who = shlex.quote(user)
    direct = f'if [ "$(id -un)" = {who} ]; then exec {inner}; fi; '
    ask_nobody = f"exec sudo -n -H -u {who} {inner}"
    if not has_password:
        return f"{direct}{ask_nobody}\n".encode()
    return (
        f"{direct}if sudo -n -H -u {who} sh -c : </dev/null >/dev/null 2>&1; then {ask_nobody}; "
        f"else exec sudo -S -p {token}:password: -H -u {who} {inner}; fi\n"
    ).encode()


def kill_text(pid: int) -> str:
    """A script that ends the process group of a shell: TERM, and KILL a second later."""
    return (
        f"g=$(sed 's/.*) //' /proc/{pid}/stat 2>/dev/null | cut -d' ' -f3)\n"
        f'[ -n "$g" ] || g=$(ps -o pgid= -p {pid} | tr -d " ")\n'
        '[ "${g:-0}" -gt 1 ] || exit 0\n'
        'kill -TERM "-$g" 2>/dev/null\n'
        "i=0\n"
        'while [ $i -lt 10 ] && kill -0 "-$g" 2>/dev/null; do sleep 0.1; i=$((i+1)); done\n'
        'kill -KILL "-$g" 2>/dev/null\n'
        "exit 0\n"
    )


@dataclass
class Frame:
    """One output of a script, cut out of what a channel brings."""

    token: bytes
    data: bytearray = field(default_factory=bytearray)
    begun: bool = False
    first_word: bytes = b""
    ended: bool = False
    last_word: bytes = b""
    _searched: int = 0

    def feed(self, piece: bytes) -> None:
        """Take what came; `data` then holds the script's own bytes so far (before `begun`: the noise)."""
        if self.ended or not piece:
            return
        self.data += piece
        if not self.begun:
            self._begin()
        if self.begun:
            self._end()

    def keep(self, size: int) -> None:
        """Forget all but the last `size` bytes."""
        surplus = len(self.data) - size
        if self.begun and surplus > 0:
            del self.data[:surplus]
            self._searched = max(0, self._searched - surplus)

    def _begin(self) -> None:
        mark = self._mark(b"begin")
        if mark is not None:
            _, self.first_word, after = mark
            self.begun = True
            del self.data[:after]
            self._searched = 0

    def _end(self) -> None:
        mark = self._mark(b"end")
        if mark is not None:
            at, self.last_word, _ = mark
            self.ended = True
            del self.data[at:]

    def _mark(self, which: bytes) -> tuple[int, bytes, int] | None:
        """Where the mark starts, its word, and where what follows it starts."""
        wanted = self.token + b":" + which
        at = self.data.find(wanted, self._searched)
        if at < 0:
            self._searched = max(0, len(self.data) - len(wanted))
            return None
        newline = self.data.find(b"\n", at)
        if newline < 0:
            self._searched = at
            return None
        word = bytes(self.data[at + len(wanted) : newline])
        return at, word.lstrip(b":"), newline + 1
