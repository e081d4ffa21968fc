"""The files of a run's directory on a host, and how they are read and written."""

import errno
import json
import os
import stat
from typing import Any, Optional


def expanded(path: str) -> str:
    """`path` as an absolute path on this host; `~` is the home of the user that we run as."""
    return os.path.abspath(os.path.expanduser(path))


class RunFiles:
    """Where everything of one run lies on this host.

    What is written while the job runs (`records`) lies beside the logs: where the run's directory is on a
    network file system, a server that does not answer for a while must not stop a supervisor.
    """

    def __init__(self, run_dir: str, log_dir: str = "", attempt: int = 0) -> None:
        self._log_dir = log_dir
        self.directory = expanded(run_dir)
        self.agent = os.path.join(self.directory, "agent.pyz")
        self.plan = os.path.join(self.directory, "plan.json")
        self.first_script = os.path.join(self.directory, "node.sh")
        self.container_script = os.path.join(self.directory, "container.sh")
        self.key = os.path.join(self.directory, "channel.key")
        self.secrets = os.path.join(self.directory, "secrets.json")
        self.records = os.path.dirname(expanded(log_dir)) if log_dir else self.directory
        self.state = os.path.join(self.records, "state.json")
        self.supervisor_log = os.path.join(self.records, "supervisor.log")
        self.attempt = os.path.join(self.records, "attempt.json")
        # What belongs to one attempt. The first one's lies beside the run's own.
        self.own = os.path.join(self.records, "attempt-%d" % attempt) if attempt else self.records
        self.logs = os.path.join(self.own, os.path.basename(expanded(log_dir))) if log_dir else ""
        self.node_script = os.path.join(self.own, "node.sh") if attempt else self.first_script
        self.ranks = os.path.join(self.own, "ranks")
        self.site = os.path.join(self.records, "site")
        self.container_log = os.path.join(self.own, "container.log")
        # The two ends of the line into a container.
        self.to_inside = os.path.join(self.records, "to-inside")
        self.from_inside = os.path.join(self.records, "from-inside")

    def of_attempt(self, attempt: int) -> "RunFiles":
        """The same run's files, with the logs and records of this attempt."""
        return RunFiles(self.directory, self._log_dir, attempt)

    def rank(self, local_rank: int) -> str:
        """The record that the rank entry of this local rank writes."""
        return os.path.join(self.ranks, "%d.json" % local_rank)

    def stacks(self, local_rank: int) -> str:
        """What the Python processes of this local rank were doing when they were asked."""
        return os.path.join(self.ranks, "%d.stacks" % local_rank)

    def times(self, local_rank: int) -> str:
        """When this local rank's log grew (`times.py`)."""
        return os.path.join(self.ranks, "%d.times" % local_rank)

    def channel_key(self) -> bytes:
        """The run's secret. Raises OSError or ValueError."""
        with open(self.key, encoding="ascii") as file:
            key = bytes.fromhex(file.read().strip())
        if len(key) < 16:
            raise ValueError("%s is too short to be a secret" % self.key)
        return key


def make_private_directory(path: str) -> None:
    """`path` is our directory, which only we can enter (its parents get the same mode if they are new).

    Raises OSError, also where another user has put something of his in the way (in /var/tmp anybody can).
    """
    old = os.umask(0o077)
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    finally:
        os.umask(old)
    part = os.path.abspath(path)
    while part != "/":
        above = os.path.dirname(part)
        if os.stat(above).st_mode & stat.S_ISVTX and os.lstat(part).st_uid not in (os.geteuid(), 0):
            raise PermissionError(errno.EPERM, "belongs to another user", part)
        part = above


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
    except BaseException as error:
        remove(beside)
        name_file(error, path)
        raise


def name_file(error: BaseException, path: str) -> None:
    """An error of the system that names no file, as that of a full disk, names this one."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = path


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
