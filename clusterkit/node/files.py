"""The files of a run's directory on a host, and how they are read and written."""

import json
import os
from typing import Any, Optional


def expanded(path: str) -> str:
    """`path` as an absolute path on this host; `~` is the home of the user that we run as."""
    return os.path.abspath(os.path.expanduser(path))


class RunFiles:
    """Where everything of one run lies on this host."""

    def __init__(self, run_dir: str) -> None:
        self.directory = expanded(run_dir)
        self.agent = self._file("agent.pyz")
        self.plan = self._file("plan.json")
        self.node_script = self._file("node.sh")
        self.key = self._file("channel.key")
        self.secrets = self._file("secrets.json")
        self.state = self._file("state.json")
        self.supervisor_log = self._file("supervisor.log")
        self.ranks = self._file("ranks")

    def _file(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def rank(self, local_rank: int) -> str:
        """The record that the rank entry of this local rank writes."""
        return os.path.join(self.ranks, "%d.json" % local_rank)

    def channel_key(self) -> bytes:
        """The run's secret. Raises OSError or ValueError."""
        with open(self.key, encoding="ascii") as file:
            key = bytes.fromhex(file.read().strip())
        if len(key) < 16:
            raise ValueError("%s is too short to be a secret" % self.key)
        return key


def make_private_directory(path: str) -> None:
    """`path` is a directory that only its owner can enter (its parents get the same mode if they are new)."""
    old = os.umask(0o077)
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    finally:
        os.umask(old)


def write_atomically(path: str, data: bytes, mode: int = 0o600) -> None:
    """`path` holds exactly `data` and has `mode`; a reader sees either the old or the new file."""
    beside = "%s.%d.part" % (path, os.getpid())
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
            out.flush()
            os.fchmod(out.fileno(), mode)
        os.rename(beside, path)
    except BaseException:
        remove(beside)
        raise


def write_json(path: str, value: Any) -> None:
    """`path` holds `value` as JSON, written atomically, readable by its owner alone."""
    write_atomically(path, json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n")


def read_json(path: str) -> Optional[Any]:
    """What `path` holds as JSON; None if it does not exist or is not JSON (yet)."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read().decode("utf-8"))
    except (OSError, ValueError):
        return None


def remove(path: str) -> None:
    """`path` is no more, if it ever was."""
    try:
        os.unlink(path)
    except OSError:
        pass


def last_bytes(path: str, count: int) -> bytes:
    """The last `count` bytes of a file; nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - count))
            return file.read(count)
    except OSError:
        return b""


def size_of(path: str) -> int:
    """The size of a file in bytes, 0 if it is not there."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
