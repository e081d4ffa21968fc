"""known_hosts, line by line (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT): what it says, and adding to it."""

from __future__ import annotations

import base64
import binascii
import fcntl
import fnmatch
import hashlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Marker = Literal["", "@revoked", "@cert-authority"]


@dataclass(frozen=True)
class KnownKey:
    """One line that speaks about a host."""

    marker: str
    kind: str
    blob: bytes
    path: Path
    line: int

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        return fingerprint(self.blob)


@dataclass(frozen=True)
class RecordedKey:
    """A host key that was new and is now kept in `path` (None: it could not be written)."""

    host: str
    name: str
    kind: str
    fingerprint: str
    path: Path | None


def fingerprint(blob: bytes) -> str:
    """`SHA256:…` of a public key."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


@dataclass(frozen=True)
class _Line:
    marker: str
    names: str
    kind: str
    key: str
    number: int


class KnownHosts:
    """The known_hosts files of this run: read again only when changed, written by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[tuple[int, int, int], tuple[_Line, ...]]] = {}

    def about(self, name: str, paths: Sequence[Path]) -> list[KnownKey]:
        """Every line of `paths` whose names match `name` (`host`, or `[host]:port`)."""
        return [key for path in paths for key in self._of_file(name, path)]

    def record(self, name: str, kind: str, blob: bytes, path: Path, *, hashed: bool) -> bool:
        """Append a key, unless somebody else just has; False if it was there. Raises OSError.

        The file is locked for processes that lock too; one `write` keeps the line whole for others.
        """
        with self._lock:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(path, "a+b", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                text = file.read()
                lines = _parse(text.decode("utf-8", "replace"))
                if any(key.blob == blob for key in _matching(name, path, lines) if not key.marker):
                    return False
                line = (
                    f"{_hashed(name) if hashed else name} {kind} {base64.b64encode(blob).decode()}\n".encode()
                )
                file.write(line if not text or text.endswith(b"\n") else b"\n" + line)
        return True

    def _of_file(self, name: str, path: Path) -> list[KnownKey]:
        with self._lock:
            lines = self._lines(path)
        return list(_matching(name, path, lines))

    def _lines(self, path: Path) -> tuple[_Line, ...]:
        try:
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
            if path not in self._read or self._read[path][0] != stamp:
                self._read[path] = (stamp, _parse(path.read_text("utf-8", "replace")))
        except OSError:
            return ()
        return self._read[path][1]


def _parse(text: str) -> tuple[_Line, ...]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if len(fields) >= 3:
            found.append(_Line(marker, fields[0], fields[1], fields[2], number))
    return tuple(found)


def _matching(name: str, path: Path, lines: Sequence[_Line]) -> Iterator[KnownKey]:
    for line in lines:
        if not _names_match(line.names, name):
            continue
        try:
            blob = base64.b64decode(line.key, validate=True)
        except (binascii.Error, ValueError):
            continue  # a broken line is nobody's key
        yield KnownKey(line.marker, line.kind, blob, path, line.number)


def _names_match(names: str, name: str) -> bool:
    """Comma-separated patterns: one must match, and no `!pattern` may."""
    found = False
    for pattern in names.split(","):
        if pattern.startswith("!"):
            if _pattern_matches(pattern[1:], name):
                return False
        elif not found and _pattern_matches(pattern, name):
            found = True
    return found


def _pattern_matches(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        return _hash_matches(pattern, name)
    pattern = pattern.lower()
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    return fnmatch.fnmatchcase(
        name, re.sub(r"\[", "[[]", pattern)
    )  # brackets are part of `[host]:port`, not a set


def _hash_matches(pattern: str, name: str) -> bool:
    try:
        _, _, salt, digest = pattern.split("|")
        wanted = base64.b64decode(digest)
        return hmac.compare_digest(hmac.digest(base64.b64decode(salt), name.encode(), "sha1"), wanted)
    except (ValueError, binascii.Error):
        return False


def _hashed(name: str) -> str:
    salt = secrets.token_bytes(20)
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
