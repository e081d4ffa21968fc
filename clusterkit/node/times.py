"""When a log was written: `N.times` beside a rank's record has a line `OFFSET TIME` for each second it grew.

All bytes before OFFSET were there at TIME, in seconds of this host's clock. An offset below the one before
it says that the log was made shorter: what came before is of another text.
"""

import bisect
import os
from typing import Dict, List, Optional, Tuple

# One entry a second at most: a run of a month has some 50 MB of them, if its logs never rest.
EVERY = 1.0

Entry = Tuple[int, float]


class Clock:
    """Notes the growth of this node's logs. What cannot be written is left out: no job depends on it."""

    def __init__(self) -> None:
        self._sizes: Dict[str, int] = {}
        self._looked = float("-inf")

    def note(self, logs: Dict[str, str], now: float) -> None:
        """Look at the logs (their paths by those of their times) if it is time to. `now` is monotonic."""
        if now - self._looked < EVERY:
            return
        self._looked = now
        for path, log in logs.items():
            try:
                status = os.stat(log)
            except OSError:
                continue
            if status.st_size != self._sizes.get(path, 0):
                self._sizes[path] = status.st_size
                _append(path, "%d %.3f\n" % (status.st_size, status.st_mtime))


def _append(path: str, line: str) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as file:
            file.write(line)
    except OSError:
        pass


class Times:
    """The entries of one log, read as they come."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read = 0
        self._offsets: List[int] = []
        self._at: List[float] = []

    def within(self, begin: int, end: int, log: os.stat_result) -> List[Entry]:
        """The entries after `begin`, up to the first one that has `end`; `log` is the log's own status."""
        self._update()
        first = bisect.bisect_right(self._offsets, begin)
        last = bisect.bisect_left(self._offsets, end)
        found = [(self._offsets[each], self._at[each]) for each in range(first, min(last + 1, len(self._at)))]
        if not found or found[-1][0] < end:
            # Not noted yet, or never: at its last change the file had all that it has.
            found.append((max(end, log.st_size), log.st_mtime))
        return found

    def before(self, at: float) -> int:
        """An offset before which nothing was written at `at` or later; 0 if there is no such entry."""
        self._update()
        place = bisect.bisect_left(self._at, at)
        return self._offsets[place - 1] if place else 0

    def _update(self) -> None:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            entry = _entry(line)
            if entry is None:
                continue
            if self._offsets and entry[0] < self._offsets[-1]:
                del self._offsets[:], self._at[:]
            self._offsets.append(entry[0])
            # A clock that was set back must not make later lines older than earlier ones.
            self._at.append(max(entry[1], self._at[-1]) if self._at else entry[1])


def _entry(line: bytes) -> Optional[Entry]:
    try:
        offset, at = line.split()
        return int(offset), float(at)
    except ValueError:
        return None
