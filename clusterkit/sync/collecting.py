"""From a folder to a manifest: walk it, leave out what is ignored, hash the rest."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from clusterkit.errors import InputError
from clusterkit.sync.ignoring import Ignores, from_above, is_virtual_environment, never
from clusterkit.sync.manifest import Entry, Manifest
from clusterkit.sync.sizes import biggest, human

DEFAULT_LIMIT = 200 * 1000 * 1000
FILE_LIMIT = 50_000
# Once it is clear that it is too much, the walk goes on this long to name the biggest folders.
LOOK_AROUND_S = 5.0

_Found = tuple[str, os.stat_result]


def collect(
    root: Path,
    *,
    limit: int = DEFAULT_LIMIT,
    needed: str | None = None,
    without: Collection[Path] = (),
) -> Manifest:
    """The manifest of everything below `root` that is not ignored, sorted by path.

    `limit` is in bytes (`--sync-limit`). `needed` is the script: leaving it out is an error. `without` are
    files that are never sent, such as that of `--env-file`. Raises InputError for too much, with the biggest
    folders and what to do, and for a file that cannot be read. Changes nothing.
    """
    root = root.resolve()
    walk = _Walk(root, {path.resolve() for path in without})
    found = sorted(_within(walk, limit))
    if needed is not None and needed not in {path for path, _ in found}:
        raise InputError(
            f"{needed} would not be sent: an ignore file leaves it out, or it is a link out of {root}",
            f"write !{needed} in {root / '.clusterkitignore'}, or start clusterkit in the script's folder",
        )
    with ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) + 1)) as pool:
        entries = tuple(pool.map(lambda each: _entry(root, *each), found))
    return Manifest(root, entries, tuple(walk.warnings))


@dataclass
class _Walk:
    """One walk over the sync root, which notes what it leaves out."""

    root: Path
    without: set[Path]
    warnings: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[_Found]:
        ignores, top = from_above(self.root)
        yield from self._folder("", ignores, top)

    def _folder(self, base: str, ignores: Ignores, top: str) -> Iterator[_Found]:
        """What is in one folder; `base` is its path from the root, `top` that of the root in its repo."""
        folder = self.root / base
        try:
            ignores = ignores.inside(folder, f"{top}/{base}".strip("/"))
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            inside = os.access(folder, os.R_OK | os.X_OK)
            raise _unreadable(Path(str(error.filename)) if inside else folder, error) from error
        for entry in entries:
            path = f"{base}/{entry.name}" if base else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if never(entry.name, is_folder) or ignores.leave_out(f"{top}/{path}".strip("/"), is_folder):
                continue
            if not self._can_be_named(path):
                continue
            if is_folder:
                if not is_virtual_environment(Path(entry.path)):
                    yield from self._folder(path, ignores, top)
            elif self._is_wanted(entry, path):
                yield path, entry.stat(follow_symlinks=False)

    def _can_be_named(self, path: str) -> bool:
        if _is_utf8(path):
            return True
        shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        self.warnings.append(f"not sent: {shown} (its name is not UTF-8; rename it if the job needs it)")
        return False

    def _is_wanted(self, entry: os.DirEntry[str], path: str) -> bool:
        if entry.is_symlink():
            if link_target(self.root, path) is not None:
                return True
            self.warnings.append(
                f"not sent: {path} (it points out of {self.root}, to {Path(entry.path).readlink()}; "
                "put a copy there, or mount it on the hosts)"
            )
            return False
        if not entry.is_file(follow_symlinks=False):
            self.warnings.append(f"not sent: {path} (a socket, pipe or device, not a file)")
            return False
        return not self.without or Path(entry.path).resolve() not in self.without


def link_target(root: Path, path: str) -> str | None:
    """Where the link `path` must point to on a host, relative to itself; None if that is outside of `root`.

    An absolute target within the root becomes relative, since the root has another path there.
    """
    place = root / path
    written = place.readlink()
    real = Path(os.path.realpath(place))
    if not real.is_relative_to(root) or not _is_utf8(str(written)):
        return None
    if not written.is_absolute() and _stays_inside(path, written):
        return written.as_posix()
    return os.path.relpath(real, place.parent)


def _stays_inside(path: str, target: Path) -> bool:
    """False for a way that leaves the root, even if it comes back: the root has another name on a host."""
    depth = path.count("/")
    for part in target.parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _within(walk: _Walk, limit: int) -> list[_Found]:
    """What the walk finds, if that is at most `limit` bytes and FILE_LIMIT files; else InputError."""
    found: list[_Found] = []
    size, until, complete = 0, None, True
    for each in walk:
        found.append(each)
        size += each[1].st_size
        if until is None and (size > limit or len(found) > FILE_LIMIT):
            until = time.monotonic() + LOOK_AROUND_S
        if until is not None and time.monotonic() > until:
            complete = False
            break
    if until is not None:
        raise _too_much(walk.root, found, size, limit, complete)
    return found


def _too_much(root: Path, found: list[_Found], size: int, limit: int, complete: bool) -> InputError:
    more = "" if complete else "more than "
    names = ", ".join(
        f"{path} {human(amount)}" for path, amount in biggest([(p, s.st_size) for p, s in found])
    )
    allowed = f"{human(limit)} (--sync-limit)" if size > limit else f"{FILE_LIMIT:,} files"
    return InputError(
        f"{root} has {more}{human(size)} in {len(found):,} files to send to every host, and {allowed} is the "
        f"limit; the biggest: {names}",
        "leave out what the job does not need with a .clusterkitignore file (rules as in .gitignore), keep "
        "data on a shared mount, or use --no-sync if the code is on one already",
    )


def _entry(root: Path, path: str, status: os.stat_result) -> Entry:
    if stat.S_ISLNK(status.st_mode):
        target = link_target(root, path) or ""
        content = target.encode()
        return Entry(path, stat.S_IFLNK | 0o777, len(content), hashlib.sha256(content).hexdigest(), target)
    digest, size = hashlib.sha256(), 0
    try:
        with open(os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise _unreadable(root / path, error) from error
    return Entry(path, stat.S_IMODE(status.st_mode) & 0o777, size, digest.hexdigest())


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path} cannot be read: {error.strerror}",
        "make it readable, or leave it out with a .clusterkitignore file",
    )
