"""Asking the person at the terminal."""

from __future__ import annotations

import atexit
import getpass
import sys

from clusterkit.remote.options import Prompter


def terminal_prompter() -> Prompter | None:
    """Asks on the terminal, hidden unless the server lets the answer be seen; None without a terminal.

    Afterwards the terminal shows what is typed again, also when Ctrl-C ends the process while a worker asks.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    import termios

    atexit.register(termios.tcsetattr, sys.stdin, termios.TCSADRAIN, termios.tcgetattr(sys.stdin))
    return _ask


def _ask(question: str, echo: bool) -> str:
    text = f"{question.rstrip(': ')}: "
    if not echo:
        return getpass.getpass(text, sys.stderr)
    sys.stderr.write(text)
    sys.stderr.flush()
    return sys.stdin.readline().rstrip("\n")
