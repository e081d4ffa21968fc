"""Lines that take minutes and load what all hosts share, a registry: few hosts at once, with progress."""

from __future__ import annotations

import secrets
import signal
import threading
from collections.abc import Callable, Iterable, Sequence

from clusterkit.errors import HostError, Interrupted
from clusterkit.remote.protocol import Remote, Stream
from clusterkit.steps.applying import outcome, progress, watched
from clusterkit.steps.engine import Step

# The script speaks every half a second: a host that is silent so long is gone.
SILENCE_S = 60.0
_LOOK_S = 0.2

Told = Callable[[str, str, str], None]


class Paced:
    """The slow lines of one command, on all hosts. `told` gets host, step and how far it is."""

    def __init__(self, steps: Iterable[Step], cancel: threading.Event, told: Told) -> None:
        self._gates = {step.name: threading.Semaphore(step.pace.at_once) for step in steps if step.pace}
        self._cancel = cancel
        self._told = told

    def run(self, remote: Remote, step: Step, lines: Sequence[str]) -> str:
        """Run one step's lines when it is this host's turn; "" if they ended well, else their last words."""
        self._wait_for_turn(step, remote.alias)
        try:
            return self._follow(remote, step, lines)
        except HostError as error:
            return error.message
        finally:
            self._gates[step.name].release()

    def _wait_for_turn(self, step: Step, host: str) -> None:
        while not self._gates[step.name].acquire(timeout=_LOOK_S):
            if self._cancel.is_set():
                raise Interrupted(signal.SIGINT, (host,))

    def _follow(self, remote: Remote, step: Step, lines: Sequence[str]) -> str:
        token = secrets.token_hex(8)
        assert step.pace is not None
        script = watched(lines, step.pace.progress, token)
        stream = remote.open(script, timeout=SILENCE_S, sudo=step.root, doing=step.name)
        try:
            stream.finish()
            text = self._read(stream, remote.alias, step.name, token)
        finally:
            stream.close()
        return outcome(text, token, [step.name])[step.name]

    def _read(self, stream: Stream, host: str, name: str, token: str) -> str:
        """All that the script wrote; what it says of its progress is passed on at once."""
        text, line = [], b""
        while data := stream.read(65536, timeout=SILENCE_S):
            text.append(data)
            *whole, line = (line + data).split(b"\n")
            for each in whole:
                said = progress(each.decode("utf-8", "replace"), token)
                if said:
                    self._told(host, name, said)
        return b"".join(text).decode("utf-8", "replace")
