"""Equal lines of many ranks as one: `[0-63 gpu[01-08]] loss 0.41`."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

# What the same line of two ranks may differ in: when it was written.
_TIME = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?|\b[IWEF]\d{4,8} \d\d:\d\d:\d\d\.\d+ +\d+"
)
# How far ahead a rank's lines are looked through for a line that others have now.
LOOK_AHEAD = 200


@dataclass(frozen=True)
class Alike:
    """One line, and the processes that wrote it (`runs.processes`); the first one's bytes."""

    processes: tuple[int, ...]
    line: bytes


def key(line: bytes) -> bytes:
    """What two lines that count as equal have in common: all but their times."""
    return _TIME.sub(b"", line)


def merged(logs: Mapping[int, Iterable[bytes]]) -> Iterator[Alike]:
    """Whole logs side by side: each process's lines in its own order, equal ones at once as one.

    Processes need not be in step: a line that comes within the next LOOK_AHEAD of another one is held back
    for that. Memory grows with the number of logs, not with their size.
    """
    heads = {process: _Head(iter(lines)) for process, lines in logs.items()}
    while True:
        waiting = {process: head for process, head in heads.items() if head.first() is not None}
        if not waiting:
            return
        groups: dict[bytes, list[int]] = {}
        for process, head in waiting.items():
            groups.setdefault(key(head.peek()), []).append(process)
        yield _taken(waiting, _next(waiting, groups))


class Window:
    """Lines as they come in: those of a moment are held, and equal ones told as one at its end."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, bytes], tuple[list[int], bytes]] = {}
        self._seen: dict[tuple[int, bytes], int] = {}

    def take(self, process: int, line: bytes) -> None:
        """Hold one line. A process that says the same twice has said it twice."""
        same = key(line)
        count = self._seen[process, same] = self._seen.get((process, same), 0) + 1
        self._held.setdefault((count, same), ([], line))[0].append(process)

    def flush(self) -> Iterator[Alike]:
        """What was held, in the order in which each line came first; nothing is held any more."""
        held, self._held, self._seen = self._held, {}, {}
        for processes, line in held.values():
            yield Alike(tuple(sorted(processes)), line)


class _Head:
    """The next lines of one process."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._next: deque[bytes] = deque()
        self._keys: deque[bytes] = deque()
        self._count: Counter[bytes] = Counter()
        self.told = 0

    def first(self) -> bytes | None:
        """The next line; None after the last one."""
        return self._next[0] if self._fill(1) else None

    def peek(self) -> bytes:
        """The next line, which there is."""
        return self._next[0]

    def pop(self) -> bytes:
        """The same, which is no longer the next one then."""
        self._count[self._keys[0]] -= 1
        if not self._count[self._keys[0]]:
            del self._count[self._keys[0]]
        self._keys.popleft()
        self.told += 1
        return self._next.popleft()

    def has(self, wanted: bytes) -> bool:
        """True if a line of that key comes soon."""
        self._fill(LOOK_AHEAD)
        return wanted in self._count

    def _fill(self, count: int) -> bool:
        while len(self._next) < count:
            line = next(self._lines, None)
            if line is None:
                break
            self._next.append(line)
            self._keys.append(key(line))
            self._count[self._keys[-1]] += 1
        return bool(self._next)


def _next(waiting: Mapping[int, _Head], groups: Mapping[bytes, list[int]]) -> list[int]:
    """The processes whose line is told next: those that are behind the others, and that nobody will join."""

    def turn(group: tuple[bytes, list[int]]) -> tuple[int, list[int]]:
        return min(waiting[process].told for process in group[1]), group[1]

    for same, have_it in sorted(groups.items(), key=turn):
        if not any(head.has(same) for process, head in waiting.items() if process not in have_it):
            return have_it
    # Two lines that each will come to in the other order: no order of ours is that of both.
    return max(groups.values(), key=len)


def _taken(heads: Mapping[int, _Head], processes: Iterable[int]) -> Alike:
    chosen = tuple(sorted(processes))
    lines = [heads[process].pop() for process in chosen]
    return Alike(chosen, lines[0])
