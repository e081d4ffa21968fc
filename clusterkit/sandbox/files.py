"""Files and directories that a host gets, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Directory:
    """A directory on the host; `skeleton` fills it as a new user's home."""

    path: str
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    skeleton: bool = False


@dataclass(frozen=True)
class File:
    """A text file on the host."""

    path: str
    content: str
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
