"""Reading logs while they grow: exact bytes, from any offset or the last lines on, piece by piece."""

import os
from typing import IO, Any, Callable, Dict, List, NamedTuple, Optional

from .times import Entry, Times

PIECE = 256 * 1024
_BLOCK = 64 * 1024


class Piece(NamedTuple):
    """Bytes of a log. `truncated` says that the log was made shorter and is read from its beginning again.

    `times`: what is known of when they were written (`times.Times.within`).
    """

    offset: int
    data: bytes
    truncated: bool
    times: List[Entry]


class Log:
    """One followed log file; it may not exist yet, and `path` says anew each time where it would be."""

    def __init__(
        self, path: Callable[[], str], wanted: Dict[str, Any], times: Optional[Times] = None
    ) -> None:
        """`wanted` is `{"offset": N}`, `{"tail": LINES}` or `{"since": TIME}` of this host's clock."""
        self._path = path
        self._times = times
        self._tail: Optional[int] = int(wanted["tail"]) if "tail" in wanted else None
        self._offset = int(wanted.get("offset", 0))
        self._since: Optional[float] = float(wanted["since"]) if times and "since" in wanted else None

    def read(self, limit: int = PIECE) -> Optional[Piece]:
        """The next bytes, at most `limit`; None if there are none now."""
        try:
            with open(self._path(), "rb") as file:
                return self._read(file, limit)
        except FileNotFoundError:
            # Whatever is written from now on is new.
            self._tail = None
            return None
        except OSError:
            return None

    def _read(self, file: IO[bytes], limit: int) -> Optional[Piece]:
        status = os.fstat(file.fileno())
        size = status.st_size
        if self._tail is not None:
            self._offset, self._tail = start_of_last_lines(file, size, self._tail), None
        if self._since is not None and self._times is not None:
            self._offset, self._since = start_of_line(file, self._times.before(self._since)), None
        truncated = size < self._offset
        if truncated:
            self._offset = 0
        file.seek(self._offset)
        data = file.read(limit)
        if not data and not truncated:
            return None
        end = self._offset + len(data)
        times = self._times.within(self._offset, end, status) if self._times is not None else []
        piece = Piece(self._offset, data, truncated, times)
        self._offset += len(data)
        return piece


def start_of_line(file: IO[bytes], offset: int) -> int:
    """Where the line begins that the byte at `offset` belongs to."""
    while offset > 0:
        begin = max(0, offset - _BLOCK)
        file.seek(begin)
        newline = file.read(offset - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        offset = begin
    return 0


def start_of_last_lines(file: IO[bytes], size: int, count: int) -> int:
    """The offset at which the last `count` lines begin; a last line without its newline counts."""
    if count <= 0 or size == 0:
        return size
    position, wanted = size, count
    while position > 0:
        begin = max(0, position - _BLOCK)
        file.seek(begin)
        block = file.read(position - begin)
        # The newline that ends the last line begins no other one.
        end = len(block) - 1 if position == size and block.endswith(b"\n") else len(block)
        while True:
            end = block.rfind(b"\n", 0, end)
            if end < 0:
                break
            wanted -= 1
            if wanted == 0:
                return begin + end + 1
        position = begin
    return 0
