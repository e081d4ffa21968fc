"""Have something agreed to before it is done: by `--yes`, or by the person at the terminal."""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence

from clusterkit.interrupts import Interrupts
from clusterkit.report.terminal import Words

# How soon a signal is noticed while an answer is waited for.
_LOOK_S = 0.1


def asks() -> bool:
    """True if there is a person at a terminal to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agreed(words: Words, interrupts: Interrupts, lines: Sequence[str], *, yes: bool) -> bool:
    """Show what would be done, and whether it shall be. Raises Interrupted: Ctrl-C is an answer too."""
    words.clear()
    for line in lines:
        # Who is asked sees what for, also with --json: this is not stdout.
        (words.say if yes or not asks() else words.insist)(line)
    if yes:
        return True
    if not asks():
        words.say("nothing was changed: there is no terminal to ask on (--yes does it without asking)")
        return False
    sys.stderr.write("Go ahead? [y/N] ")
    sys.stderr.flush()
    if _answer(interrupts) in ("y", "yes"):
        return True
    words.insist("nothing was changed")
    return False


def _answer(interrupts: Interrupts) -> str:
    """The line that the person types."""
    while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
        if interrupts.count:
            sys.stderr.write("\n")
        interrupts.check()
    return sys.stdin.readline().strip().lower()
