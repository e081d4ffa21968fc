"""The same on many hosts at once: bounded, each result kept, and an account of who is still awaited."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from clusterkit.errors import HostError, Interrupted

T = TypeVar("T")
R = TypeVar("R")

# How often a wait looks whether it was cancelled.
_LOOK_S = 0.1


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What came of a fan-out, by inventory alias in the inventory's order; each host is in one of both."""

    good: dict[str, R]
    bad: dict[str, HostError]


def fan_out(
    remotes: Mapping[str, T],
    fn: Callable[[T], R],
    *,
    forks: int = 64,
    cancel: threading.Event | None = None,
    on_done: Callable[[str], None] | None = None,
) -> Outcome[R]:
    """Call `fn` for every host, at most `forks` at a time, and wait for all of them.

    A HostError is that host's outcome. Any other exception is raised once all others have ended. `on_done`
    is called in this thread as each host ends. When `cancel` is set, or on Ctrl-C, raises Interrupted with
    the hosts that have not ended, at once: what still runs is left to its own time limits.
    """
    wave = _Wave(remotes, fn)
    wave.start(max(1, min(forks, len(remotes))))
    try:
        while wave.unfinished:
            if cancel is not None and cancel.is_set():
                raise Interrupted(getattr(cancel, "signum", 0) or signal.SIGINT, wave.give_up())
            alias = wave.next_ended(_LOOK_S)
            if alias is not None and on_done is not None:
                on_done(alias)
    except KeyboardInterrupt:
        raise Interrupted(signal.SIGINT, wave.give_up()) from None
    return wave.outcome()


class _Wave(Generic[T, R]):
    """One fan-out under way. Workers take from one queue and put into another; the rest is the caller's."""

    def __init__(self, remotes: Mapping[str, T], fn: Callable[[T], R]) -> None:
        self._order = tuple(remotes)
        self._fn = fn
        self._todo: queue.SimpleQueue[tuple[str, T]] = queue.SimpleQueue()
        for item in remotes.items():
            self._todo.put(item)
        self._ended: queue.SimpleQueue[tuple[str, R | None, BaseException | None]] = queue.SimpleQueue()
        self.unfinished = set(remotes)
        self._good: dict[str, R] = {}
        self._bad: dict[str, HostError] = {}
        self._bugs: list[BaseException] = []

    def start(self, workers: int) -> None:
        """Daemon threads: one that is stuck keeps neither us nor the process from ending."""
        for number in range(workers if self._order else 0):
            threading.Thread(target=self._work, daemon=True, name=f"fan-out-{number}").start()

    def next_ended(self, timeout: float) -> str | None:
        """The next host that has ended, its outcome kept; None if there was none in time."""
        try:
            alias, result, error = self._ended.get(timeout=timeout)
        except queue.Empty:
            return None
        self.unfinished.discard(alias)
        if error is None:
            self._good[alias] = result  # type: ignore[assignment]
        elif isinstance(error, HostError):
            self._bad[alias] = error
        else:
            self._bugs.append(error)
        return alias

    def give_up(self) -> tuple[str, ...]:
        """Start nothing more; the hosts that have not ended, in order."""
        try:
            while True:
                self._todo.get_nowait()
        except queue.Empty:
            pass
        return tuple(alias for alias in self._order if alias in self.unfinished)

    def outcome(self) -> Outcome[R]:
        """Everything, in order. Raises what a worker should not have raised."""
        if self._bugs:
            raise self._bugs[0]
        good = {alias: self._good[alias] for alias in self._order if alias in self._good}
        return Outcome(good, {alias: self._bad[alias] for alias in self._order if alias in self._bad})

    def _work(self) -> None:
        while True:
            try:
                alias, target = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._ended.put((alias, self._fn(target), None))
            except BaseException as error:
                self._ended.put((alias, None, error))
