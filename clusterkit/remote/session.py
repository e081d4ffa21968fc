"""Scripts in shells: run to the end or opened as a stream, under sudo if asked, with an end to each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from clusterkit.errors import HostError, HostTimeout, Unreachable
from clusterkit.inventory.model import Secret
from clusterkit.remote.frames import Frame, kill_text, new_token, open_text, run_text, sudo_text
from clusterkit.remote.protocol import Result
from clusterkit.remote.shell import Shell, ShellGone
from clusterkit.remote.stream import ShellStream

# To end a script that is over its time; and for stderr's end mark, which follows stdout's at once.
_KILL_S = 5.0
_GRACE_S = 1.0


@dataclass(frozen=True)
class Become:
    """Who a script that asks for sudo becomes, and the password for it."""

    user: str = "root"
    password: Secret | None = None


@dataclass(frozen=True)
class Place:
    """One host as this module needs it: what it is called, and how to get a shell there in some seconds."""

    alias: str
    named: str
    user: str
    new_shell: Callable[[float], Shell]
    become: Become


class Deadline:
    """A named wait."""

    def __init__(self, place: Place, timeout: float, doing: str) -> None:
        self._place, self._timeout, self.doing = place, timeout, doing
        self._end = time.monotonic() + timeout

    def left(self) -> float:
        """Seconds until it is over; 0 afterwards."""
        return max(0.0, self._end - time.monotonic())

    def passed(self) -> HostTimeout:
        """The error that says so."""
        message = f"{self._place.named}: {self.doing} did not end within {self._timeout:g} s"
        return HostTimeout(
            self._place.alias,
            message,
            "if the host is only slow, a higher --timeout helps; else see what hangs there",
        )


def run(place: Place, script: str, deadline: Deadline, *, sudo: bool) -> Result:
    """Run a script to its end. Raises Unreachable, HostTimeout."""
    token = new_token()
    out, err = Frame(token.encode()), Frame(token.encode())
    shell = _start(place, deadline, token, sudo)
    try:
        sent = time.time()
        _say(place, shell, run_text(token, script))
        _collect(shell, out, err, deadline)
        status = int(out.last_word) if out.ended else _status(shell)
        if not out.begun:
            raise _no_shell(place, status, out, err)
    except TimeoutError:
        if out.begun:
            _end(place, int(out.first_word), sudo)
        raise deadline.passed() from None
    except ShellGone as gone:
        raise lost(place, gone, deadline.doing) from gone
    finally:
        shell.close()
    if status is None:
        message = f"{place.named}: the shell there was ended during {deadline.doing}, without a status"
        raise Unreachable(
            place.alias, "shell", message, "look for the out-of-memory killer: dmesg on the host"
        )
    return Result(status, bytes(out.data), bytes(err.data) if err.begun else b"", sent)


def open_stream(place: Place, script: str, deadline: Deadline, *, sudo: bool) -> ShellStream:
    """Start a script and return once it has begun. Raises Unreachable, HostTimeout."""
    token = new_token()
    out, err = Frame(token.encode()), Frame(token.encode())
    shell = _start(place, deadline, token, sudo)
    try:
        _say(place, shell, open_text(token, script))
        while not out.begun:
            chunk = shell.receive(deadline.left())
            out.feed(chunk.out)
            err.feed(chunk.err)
            if chunk.ended:
                raise _no_shell(place, _status(shell), out, err)
    except BaseException as error:
        shell.close()
        if isinstance(error, TimeoutError):
            raise deadline.passed() from None
        if isinstance(error, ShellGone):
            raise lost(place, error, deadline.doing) from error
        raise
    return ShellStream(place.alias, place.named, deadline.doing, shell, out, err)


def lost(place: Place, gone: ShellGone, doing: str) -> Unreachable:
    """The connection went away under a script."""
    return Unreachable(
        place.alias,
        "connection",
        f"{place.named}: the connection was lost during {doing}: {gone}",
        "what ran there may still run; try again when the host answers",
    )


def _start(place: Place, deadline: Deadline, token: str, sudo: bool) -> Shell:
    """A shell that waits for its script, as the user who is to run it."""
    try:
        shell = place.new_shell(deadline.left())
    except TimeoutError:
        raise deadline.passed() from None
    except ShellGone as gone:
        raise lost(place, gone, deadline.doing) from gone
    if sudo:
        try:
            _become(place, shell, deadline, token)
        except BaseException:
            shell.close()
            raise
    return shell


def _say(place: Place, shell: Shell, text: bytes) -> None:
    try:
        shell.send(text)
    except BrokenPipeError:
        pass  # it ended before it had read everything: what it printed says why
    except ShellGone as gone:
        raise lost(place, gone, "the start of a shell") from gone


def _collect(shell: Shell, out: Frame, err: Frame, deadline: Deadline) -> None:
    """Feed both frames until both are complete, or the shell is at its end. Raises TimeoutError, ShellGone.

    A background child may hold the outputs open for hours: the end marks say when the script was through.
    """
    while not (out.ended and err.ended):
        try:
            chunk = shell.receive(min(deadline.left(), _GRACE_S) if out.ended else deadline.left())
        except TimeoutError:
            if out.ended:
                return
            raise
        out.feed(chunk.out)
        err.feed(chunk.err)
        if chunk.ended:
            return


def _status(shell: Shell) -> int | None:
    try:
        return shell.status(_GRACE_S)
    except (TimeoutError, ShellGone):
        return None


def _no_shell(place: Place, status: int | None, out: Frame, err: Frame) -> Unreachable:
    """The login shell ended without having started ours."""
    said = bytes(out.data or err.data).decode("utf-8", "replace").strip().splitlines()
    words = f": {said[-1].strip()}" if said else ""
    return Unreachable(
        place.alias,
        "shell",
        f"{place.named}: user {place.user}'s login shell ended at once (status {status}){words}",
        "the account needs a login shell that can run `exec sh -s`, and no ForceCommand",
    )


def _end(place: Place, pid: int, sudo: bool) -> None:
    """End a script that is over its time, as well as we can: the caller reports the time in any case."""
    with contextlib.suppress(HostError):
        run(place, kill_text(pid), Deadline(place, _KILL_S, "ending what took too long"), sudo=sudo)


# sudo


def _become(place: Place, shell: Shell, deadline: Deadline, token: str) -> None:
    """Have sudo start the shell that will read the script. Raises Unreachable (stage `sudo`), HostTimeout."""
    become = place.become
    _say(place, shell, sudo_text(token, become.user, has_password=become.password is not None))
    out, err = bytearray(), bytearray()
    prompt, asked = f"{token}:password:".encode(), 0
    try:
        while f"{token}:inner".encode() not in out:
            chunk = shell.receive(deadline.left())
            out += chunk.out
            err += chunk.err
            if chunk.ended:
                raise _no_sudo(place, shell, out, err, prompt)
            if err.count(prompt) > asked:
                asked += 1
                if asked > 1 or become.password is None:
                    raise _sudo(
                        place,
                        "the sudo password was wrong",
                        "check ansible_become_password or --ask-become-pass",
                    )
                shell.send(become.password.reveal().encode() + b"\n")
    except TimeoutError:
        said = _last_line(bytes(err).replace(prompt, b""))
        if said:
            raise _sudo(place, f"sudo asks for something else than a password: {said}", _RULE) from None
        raise deadline.passed() from None
    except BrokenPipeError:
        raise _sudo(place, "sudo ended while the password was sent", _RULE) from None
    except ShellGone as gone:
        raise lost(place, gone, "sudo") from gone


_RULE = "on the host: `sudo -l` shows what this user may do"


def _no_sudo(place: Place, shell: Shell, out: bytearray, err: bytearray, prompt: bytes) -> Unreachable:
    status = _status(shell)
    said = _last_line(bytes(err).replace(prompt, b"")) or _last_line(bytes(out)) or f"status {status}"
    become = place.become
    if status == 127 or "not found" in said:
        return _sudo(
            place,
            f"sudo is not there: {said}",
            "install sudo on the host, or log in as root (ansible_user=root)",
        )
    if "incorrect password" in said or "Sorry, try again" in said:
        return _sudo(
            place, "the sudo password was wrong", "check ansible_become_password or --ask-become-pass"
        )
    if become.password is None and "password" in said:
        hint = "pass --ask-become-pass, or set ansible_become_password"
        return _sudo(place, f"sudo wants {place.user}'s password", hint)
    if "tty" in said:
        hint = f"on the host, in /etc/sudoers: Defaults:{place.user} !requiretty"
        return _sudo(place, f"sudo works only on a terminal there: {said}", hint)
    return _sudo(place, f"user {place.user} cannot become {become.user}: {said}", _RULE)


def _last_line(text: bytes) -> str:
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("sudo: ") if lines else ""


def _sudo(place: Place, message: str, hint: str) -> Unreachable:
    return Unreachable(place.alias, "sudo", f"{place.named}: {message}", hint)
