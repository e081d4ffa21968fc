"""SIGINT, SIGTERM and SIGHUP as facts that a loop looks at, not as exceptions that fall anywhere."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from clusterkit.errors import Interrupted


class Cancel(threading.Event):
    """Set by the first signal that ends what is going on; `signum` says which it was."""

    signum = 0


class Interrupts:
    """Counts the user's signals while it is entered. Use in the main thread, as a context manager.

    `cancel` is set by the first SIGINT or SIGTERM: fan-outs and waits look at it. SIGHUP only sets `hangup`.
    """

    def __init__(self) -> None:
        self.cancel = Cancel()
        self.hangup = False
        self.count = 0
        self.signum = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    def check(self) -> None:
        """Raises Interrupted if a SIGINT or SIGTERM has arrived."""
        if self.count:
            raise Interrupted(self.signum)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGHUP:
            self.hangup = True
            return
        self.count += 1
        self.signum = self.cancel.signum = self.signum or signum
        self.cancel.set()
