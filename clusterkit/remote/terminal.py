"""Asking the person at the terminal."""

from __future__ import annotations

import getpass
import sys

from clusterkit.remote.options import Prompter


def terminal_prompter() -> Prompter | None:
    """Asks on the terminal, hidden unless the server lets the answer be seen; None without a terminal."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(question: str, echo: bool) -> str:
    if not echo:
        return getpass.getpass(f"{question.rstrip(': ')}: ", sys.stderr)
    sys.stderr.write(f"{question.rstrip(': ')}: ")
    sys.stderr.flush()
    return sys.stdin.readline().rstrip("\n")
