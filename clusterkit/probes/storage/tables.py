"""The kernel's table of mounts and /etc/fstab, as text and back (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Both tables write these characters as a backslash and three octal digits; /etc/fstab has comments besides.
_ESCAPED = re.compile(r"\\([0-7]{3})")
_IN_TABLE = re.compile(r"[\s\\]")
_IN_FSTAB = re.compile(r"[\s\\#]")


@dataclass(frozen=True)
class Mounted:
    """What is mounted somewhere. `options` are those of the mount, then those of the file system."""

    source: str
    type: str
    options: tuple[str, ...]

    @property
    def read_only(self) -> bool:
        """True if either the mount or its file system is."""
        return "ro" in self.options


@dataclass(frozen=True)
class FstabLine:
    """A line of /etc/fstab that mounts something; `text` is the line itself."""

    text: str
    source: str
    path: str
    type: str
    options: tuple[str, ...]


def escape(word: str, *, fstab: bool = True) -> str:
    """The word as a field of /etc/fstab, or as the path of a mount point in the kernel's table."""
    needed = _IN_FSTAB if fstab else _IN_TABLE
    return needed.sub(lambda match: f"\\{ord(match[0]):03o}", word)


def unescape(word: str) -> str:
    """The inverse of `escape`."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), word)


def mounted(line: str) -> tuple[str, Mounted]:
    """The mount point and what is there, of one line of /proc/self/mountinfo. ValueError for another line."""
    before, _, after = line.partition(" - ")
    own, rest = before.split(" "), after.split(" ")
    options = (*own[5].split(","), *(rest[2].split(",") if len(rest) > 2 else ()))
    return unescape(own[4]), Mounted(unescape(rest[1]), rest[0], options)


def fstab_line(text: str) -> FstabLine | None:
    """What a line of /etc/fstab says; None for a comment, a blank line and one with too few fields."""
    words = text.split()
    if len(words) < 3 or words[0].startswith("#"):
        return None
    source, path, kind = (unescape(word) for word in words[:3])
    options = tuple(unescape(words[3]).split(",")) if len(words) > 3 else ()
    return FstabLine(text, source, path if path == "/" else path.rstrip("/"), kind, options)
