"""`stage`: the run's own files and the synced code are on this host, only what differs having travelled."""

import errno
import fcntl
import hashlib
import json
import os
import stat
import sys
import time
from typing import IO, Any, Dict, List, NamedTuple, Optional, Tuple

from .files import (
    expanded,
    make_private_directory,
    name_file,
    read_json,
    remove,
    write_atomically,
    write_json,
)

# Another stage of the same code on this host may be at work.
LOCK_LIMIT = 120.0
_PIECE = 1 << 20
_LINK = 0o120000


class StageError(Exception):
    """The files cannot be had here; the message is one line and names the path."""


class Entry(NamedTuple):
    """One file of the manifest. A symbolic link has mode 0o120777, and its target is its content."""

    path: str
    mode: int
    size: int
    sha256: str

    @property
    def is_link(self) -> bool:
        """True for a symbolic link."""
        return stat.S_IFMT(self.mode) == _LINK


def main(source: IO[bytes], sink: IO[bytes]) -> int:
    """Speak the protocol of docs/architecture.md, "Staging"; 0 if everything is in place."""
    try:
        header = json.loads(source.readline().decode("utf-8"))
        answer = _stage(header, source, sink)
    except StageError as error:
        answer = {"error": str(error)}
    except OSError as error:
        answer = {"error": "%s: %s" % (error.filename or "the run's directory", error.strerror)}
    except (ValueError, KeyError, TypeError) as error:
        answer = {"error": "the header cannot be understood: %r" % error}
    _say(sink, answer)
    return 1 if "error" in answer else 0


def _say(sink: IO[bytes], value: Dict[str, Any]) -> None:
    sink.write(json.dumps(value).encode("ascii") + b"\n")
    sink.flush()


def _stage(header: Dict[str, Any], source: IO[bytes], sink: IO[bytes]) -> Dict[str, Any]:
    run_dir = expanded(header["run_dir"])
    make_private_directory(run_dir)
    os.chmod(run_dir, 0o700)
    for name, text in header["files"].items():
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise StageError("%r is not a file name" % name)
        write_atomically(os.path.join(run_dir, name), text.encode("utf-8", "surrogateescape"))
    make_private_directory(expanded(header["log_dir"]))
    sync = header.get("sync")
    if not sync:
        _say(sink, {"need": []})
        workdir = expanded(header["workdir"])
        if not os.path.isdir(workdir):
            words = "%s is not a folder on this host, and --no-sync sends no code: mount it there"
            raise StageError(words % workdir)
        return {"staged": True, "received_bytes": 0, "run_dir": run_dir, "workdir": workdir}
    root = expanded(sync["root"])
    entries = [checked(Entry(*item)) for item in sync["manifest"]]
    make_private_directory(root)
    with _Lock(_beside(root, ".lock")):
        received = Sync(root, entries).receive(source, sink)
    return {"staged": True, "received_bytes": received, "run_dir": run_dir, "workdir": root}


def _beside(root: str, ending: str) -> str:
    return os.path.join(os.path.dirname(root), ".%s%s" % (os.path.basename(root), ending))


def checked(entry: Entry) -> Entry:
    """The entry, if its path stays inside the root. Raises StageError."""
    parts = entry.path.split("/")
    if entry.path.startswith("/") or "\0" in entry.path or any(part in ("", ".", "..") for part in parts):
        raise StageError("%r is not a path inside the synced folder" % entry.path)
    if stat.S_IFMT(entry.mode) not in (0, stat.S_IFREG, _LINK):
        raise StageError("%r is neither a file nor a symbolic link" % entry.path)
    return entry


class _Lock:
    """One stage at a time writes into a code directory of this host."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        end = time.monotonic() + LOCK_LIMIT
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    return  # A file system without locks: nothing better can be done.
                if time.monotonic() > end:
                    raise StageError("%s: another stage has held it for %g s" % (self._path, LOCK_LIMIT))
            time.sleep(0.1)

    def __exit__(self, *_: Any) -> None:
        os.close(self._file)


class Sync:
    """The files under `root` become those of the manifest; what the job wrote beside them stays."""

    def __init__(self, root: str, entries: List[Entry]) -> None:
        self._root = root
        self._entries = entries
        self._memory = _beside(root, ".json")
        self._sent: Dict[str, List[Any]] = read_json(self._memory) or {}

    def receive(self, source: IO[bytes], sink: IO[bytes]) -> int:
        """Everything is in place; returns how many bytes have travelled. Raises StageError, OSError."""
        self._remove_stale()
        need = [index for index, entry in enumerate(self._entries) if not self._is_here(entry)]
        # From now on these are files that a sync sent, whatever interrupts us.
        for index in need:
            self._sent[self._entries[index].path] = [None, None, None]
        write_json(self._memory, self._sent)
        wanted = sum(self._entries[index].size for index in need)
        self._check_space(wanted)
        _say(sink, {"need": need})
        for index in need:
            self._write(self._entries[index], source)
        for entry in self._entries:
            self._set_mode(entry)
            self._remember(entry)
        write_json(self._memory, self._sent)
        return wanted

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path)

    def _remove_stale(self) -> None:
        wanted = {entry.path for entry in self._entries}
        for path in [path for path in self._sent if path not in wanted]:
            if not self._crosses_link(path):
                remove(self._path(path))
                self._remove_empty_folders(os.path.dirname(path))
            del self._sent[path]

    def _remove_empty_folders(self, folder: str) -> None:
        while folder:
            try:
                os.rmdir(self._path(folder))
            except OSError:
                return
            folder = os.path.dirname(folder)

    def _crosses_link(self, path: str) -> bool:
        folder = os.path.dirname(path)
        while folder:
            if os.path.islink(self._path(folder)):
                return True
            folder = os.path.dirname(folder)
        return False

    def _is_here(self, entry: Entry) -> bool:
        if self._crosses_link(entry.path):
            return False
        try:
            found = os.lstat(self._path(entry.path))
        except OSError:
            return False
        if stat.S_ISLNK(found.st_mode) != entry.is_link or found.st_size != entry.size:
            return False
        if self._sent.get(entry.path) == [found.st_size, found.st_mtime_ns, entry.sha256]:
            return True
        return self._sha256(entry) == entry.sha256

    def _sha256(self, entry: Entry) -> Optional[str]:
        digest = hashlib.sha256()
        try:
            if entry.is_link:
                digest.update(os.fsencode(os.readlink(self._path(entry.path))))
            else:
                with open(self._path(entry.path), "rb") as file:
                    for piece in iter(lambda: file.read(_PIECE), b""):
                        digest.update(piece)
        except OSError:
            return None
        return digest.hexdigest()

    def _check_space(self, wanted: int) -> None:
        free = os.statvfs(self._root)
        if wanted > free.f_bavail * free.f_frsize:
            words = "%s: no space left: %d bytes are to come, %d are free"
            raise StageError(words % (self._root, wanted, free.f_bavail * free.f_frsize))

    def _write(self, entry: Entry, source: IO[bytes]) -> None:
        path = self._path(entry.path)
        if self._crosses_link(entry.path):
            raise StageError("%s lies behind a symbolic link on this host; remove the link" % path)
        if os.path.isdir(path) and not os.path.islink(path):
            raise StageError("%s is a folder on this host; remove it" % path)
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        beside = "%s.%d.part" % (path, os.getpid())
        try:
            if entry.is_link:
                os.symlink(os.fsdecode(_exactly(source, entry)), beside)
            else:
                _copy(source, entry, beside)
            os.rename(beside, path)
        except BaseException as error:
            remove(beside)
            name_file(error, path)
            raise

    def _set_mode(self, entry: Entry) -> None:
        if not entry.is_link:
            os.chmod(self._path(entry.path), stat.S_IMODE(entry.mode) & 0o755 | 0o600)

    def _remember(self, entry: Entry) -> None:
        found = os.lstat(self._path(entry.path))
        self._sent[entry.path] = [found.st_size, found.st_mtime_ns, entry.sha256]


def _copy(source: IO[bytes], entry: Entry, path: str) -> None:
    digest, missing = hashlib.sha256(), entry.size
    with open(path, "wb") as file:
        while missing:
            piece = source.read(min(_PIECE, missing))
            if not piece:
                raise StageError(_cut_off(entry, entry.size - missing))
            file.write(piece)
            digest.update(piece)
            missing -= len(piece)
    if digest.hexdigest() != entry.sha256:
        raise StageError("%s changed while it was being sent; launch again" % entry.path)


def _exactly(source: IO[bytes], entry: Entry) -> bytes:
    data = source.read(entry.size)
    if len(data) != entry.size:
        raise StageError(_cut_off(entry, len(data)))
    return data


def _cut_off(entry: Entry, count: int) -> str:
    return "the connection ended after %d of %d bytes of %s" % (count, entry.size, entry.path)


def standard_streams() -> Tuple[IO[bytes], IO[bytes]]:
    """stdin and stdout as bytes."""
    return sys.stdin.buffer, sys.stdout.buffer
