"""`status --watch`: ask the hosts again and again, until the run ends or the person has seen enough."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from clusterkit.errors import ExitCode, Interrupted
from clusterkit.interrupts import Interrupts
from clusterkit.report.screen import Screen
from clusterkit.report.terminal import Words
from clusterkit.runs.record import ENDED

EVERY_S = 2.0
# No host has answered for so long: there is nothing to watch from here.
SILENCE_S = 60.0


def watch(ask: Callable[[], Mapping[str, Any]], interrupts: Interrupts, *, as_json: bool) -> int:
    """Show what `ask` answers every 2 s; the exit code.

    0 once the run has ended, 4 if no host answers for 60 s, 130 after Ctrl-C; the run does not notice.
    """
    screen = Screen()
    if not as_json:
        screen.clear()
    heard = time.monotonic()
    while True:
        try:
            status = ask()
            if as_json:
                print(json.dumps(status), flush=True)
            else:
                screen.show(status)
            if status["state"] in ENDED:
                return ExitCode.OK
            if any(not node["error"] for node in status["nodes"]):
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S:
                Words().insist(f"no host has answered for {SILENCE_S:.0f} s; the run may go on", "red")
                return ExitCode.UNREACHABLE
            interrupts.cancel.wait(EVERY_S)
            interrupts.check()
        except Interrupted as left:
            Words().insist("no longer watching; the run goes on by itself")
            return int(left.exit_code)
