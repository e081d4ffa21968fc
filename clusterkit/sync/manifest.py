"""What is to be sent: one entry a file, in a fixed order."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import InputError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A file of the sync root. `path` is relative, with forward slashes. `mode` is `0o644` or `0o755` style
    permission bits; of a symbolic link it is `0o120777`, and its content is the path that it points to."""

    path: str
    mode: int
    size: int
    sha256: str
    target: str | None = None

    @property
    def is_link(self) -> bool:
        """True for a symbolic link."""
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True)
class Manifest:
    """All files of a sync root, by path; `warnings` say what was left out and why it may matter."""

    root: Path
    entries: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.entries)

    def rows(self) -> list[list[object]]:
        """The manifest as it travels: `[path, mode, size, sha256]` (docs/architecture.md, "Staging")."""
        return [[entry.path, entry.mode, entry.size, entry.sha256] for entry in self.entries]

    def content(self, entry: Entry) -> Iterator[bytes]:
        """Exactly `entry.size` bytes, in pieces. Raises InputError if the file has shrunk or is gone."""
        if entry.target is not None:
            yield entry.target.encode()
            return
        left = entry.size
        try:
            with open(os.open(self.root / entry.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                while left:
                    piece = file.read(min(_CHUNK, left))
                    if not piece:
                        break
                    left -= len(piece)
                    yield piece
        except OSError as error:
            raise _changed(entry, str(error.strerror)) from error
        if left:
            raise _changed(entry, "it became shorter")


def _changed(entry: Entry, how: str) -> InputError:
    return InputError(
        f"{entry.path} changed while it was being sent: {how}",
        "launch again; leave files that are being written out with .clusterkitignore",
    )
