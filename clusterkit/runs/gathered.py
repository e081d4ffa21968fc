"""Logs as bytes on this side: the gathered files, and lines cut from a stream for showing.

A gathered file is written at the offset that the host names. Two readers of the same run therefore write
the same bytes to the same places, and a file's size is the offset to go on from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from clusterkit.runs.times import Entry, Written, beside, keep, kept

# A line longer than this is shown in pieces; the gathered file has it whole.
LONGEST_LINE = 1 << 16


class GatheredLogs:
    """Open files of a run's gathered logs. Use as a context manager; a file is made when bytes come."""

    def __init__(self, path_of: Callable[[str], Path]) -> None:
        self._path_of = path_of
        self._files: dict[str, int] = {}
        self._times: dict[str, Written] = {}

    def __enter__(self) -> GatheredLogs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def size(self, file: str) -> int:
        """How many bytes have been gathered: the offset at which to go on."""
        path = self._path_of(file)
        return path.stat().st_size if path.exists() else 0

    def write(self, file: str, offset: int, data: bytes) -> None:
        """Put these bytes at their place. Raises OSError (a full disk) with nothing else lost."""
        descriptor = self._files.get(file)
        if descriptor is None:
            path = self._path_of(file)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            self._files[file] = descriptor
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], offset + written)

    def note(self, file: str, entries: Sequence[Entry]) -> None:
        """Keep when a file's bytes were written, as far as it is new. Raises OSError."""
        path = self._path_of(file)
        if file not in self._times:
            self._times[file] = kept(path)
        new = self._times[file].add(entries)
        if new and path.exists():
            keep(path, new)

    def truncate(self, file: str) -> None:
        """Forget what was gathered of a file that was truncated or replaced on its host."""
        path = self._path_of(file)
        self._times.pop(file, None)
        beside(path).unlink(missing_ok=True)
        if path.exists():
            os.truncate(path, 0)


class LastBytes(GatheredLogs):
    """The ends of logs in memory, at most `most` bytes of each: for a look at what nobody gathers."""

    def __init__(self, most: int) -> None:
        super().__init__(Path)
        self._most = most
        self._ends: dict[str, bytes] = {}

    def size(self, file: str) -> int:
        """How many bytes are kept."""
        return len(self._ends.get(file, b""))

    def write(self, file: str, offset: int, data: bytes) -> None:
        """These bytes follow those that came before."""
        self._ends[file] = (self._ends.get(file, b"") + data)[-self._most :]

    def truncate(self, file: str) -> None:
        """The file begins anew on its host."""
        self._ends.pop(file, None)

    def text(self, file: str) -> str | None:
        """What was kept, undecodable bytes replaced; None if nothing came."""
        data = self._ends.get(file)
        return None if data is None else data.decode("utf-8", "replace")


class Lines:
    """Whole lines of several files out of chunks of bytes; what has no newline yet waits for `rest`."""

    def __init__(self) -> None:
        self._unfinished: dict[str, bytes] = {}

    def feed(self, file: str, data: bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """The lines that these bytes, from `offset` on, complete: where each ends, and it without newline."""
        before = self._unfinished.pop(file, b"")
        *lines, rest = (before + data).split(b"\n")
        position = offset - len(before)
        for line in lines:
            position += len(line) + 1
            yield position, line
        while len(rest) > LONGEST_LINE:
            position += LONGEST_LINE
            yield position, rest[:LONGEST_LINE]
            rest = rest[LONGEST_LINE:]
        if rest:
            self._unfinished[file] = rest

    def rest(self) -> Iterator[tuple[str, bytes]]:
        """What was left without a newline, once nothing more will come."""
        yield from self._unfinished.items()
        self._unfinished.clear()


def line_start(file: BinaryIO, offset: int) -> int:
    """Where the line begins that the byte at `offset` belongs to; the file stays where it is."""
    block, here = 1 << 16, file.tell()
    while offset > 0:
        start = max(0, offset - block)
        file.seek(start)
        newline = file.read(offset - start).rfind(b"\n")
        if newline >= 0:
            offset = start + newline + 1
            break
        offset = start
    file.seek(here)
    return offset


def tail_offset(path: Path, lines: int) -> int:
    """The offset at which the last `lines` lines of a file begin, read from its end in blocks."""
    block = 1 << 16
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        # The newline that ends the file ends its last line; it does not begin another.
        position = end - 1 if end and lines else end
        missing = lines
        while position > 0 and missing > 0:
            start = max(0, position - block)
            file.seek(start)
            data = file.read(position - start)
            index = len(data)
            while missing > 0 and (index := data.rfind(b"\n", 0, index)) >= 0:
                missing -= 1
                if missing == 0:
                    return start + index + 1
            position = start
        return 0 if lines else end


def ends(paths: Mapping[int, Path], count: int = 4096) -> dict[int, str]:
    """The last `count` bytes of each of these files as text; a file that is not there is left out."""
    found = {}
    for rank, path in paths.items():
        if path.exists():
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - count))
                found[rank] = file.read(count).decode("utf-8", "replace")
    return found
