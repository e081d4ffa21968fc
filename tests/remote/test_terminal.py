"""Questions on a real terminal (a pty)."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import textwrap
import time

import pytest

from clusterkit.remote import terminal_prompter
from clusterkit.remote.secrets import AskedOnce


def echoes(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def on_terminal(code: str, terminal: int) -> subprocess.Popen[bytes]:
    head = "from clusterkit.remote import terminal_prompter\nask = terminal_prompter()\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(code)],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=terminal,
        start_new_session=True,
    )


def until(said: bytes, ours: int) -> None:
    got = b""
    end = time.monotonic() + 10
    while said not in got and time.monotonic() < end:
        got += os.read(ours, 1000)
    assert said in got


@pytest.mark.parametrize("echo", [False, True])
def test_an_answer_is_shown_only_if_it_may_be(echo: bool) -> None:
    ours, theirs = pty.openpty()
    process = on_terminal(f"print(ask('Passphrase for /k: ', {echo}))", theirs)
    until(b"Passphrase for /k: ", ours)
    assert echoes(theirs) == echo
    os.write(ours, b"s3cret\n")
    out, _ = process.communicate(timeout=10)
    assert out == b"s3cret\n"
    assert echoes(theirs)
    for end in (ours, theirs):
        os.close(end)


def test_a_process_that_ends_while_a_worker_asks_leaves_the_terminal_as_it_was() -> None:
    ours, theirs = pty.openpty()
    code = """
        import sys, threading, time
        threading.Thread(target=ask, args=('Password', False), daemon=True).start()
        sys.stdin.isatty()
        time.sleep(0.5)
        print('bye', flush=True)
        """
    process = on_terminal(code, theirs)
    until(b"Password: ", ours)
    assert not echoes(theirs)
    process.communicate(timeout=10)
    assert echoes(theirs)
    for end in (ours, theirs):
        os.close(end)


def test_without_a_terminal_there_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115
    assert terminal_prompter() is None
    sys.stdin.close()
    asked = AskedOnce(None)
    assert (asked.possible, asked.ask("Password")) == (False, None)
