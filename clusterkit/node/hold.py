"""What a run holds of its host: GPUs and ports, in a file that says whose, locked while its supervisor lives.

    /var/tmp/clusterkit-locks/MACHINE_ID/RUN_ID.NODE_RANK.json
    {"lock": 1, "run_id": …, "node_rank": …, "owner": "ann@laptop", "since": …, "pid": …,
     "ports": [30100, 30119], "devices": [0, 1]}

The lock is the kernel's (flock): it goes with the supervisor, whatever ends that. A file that can be locked
is therefore one of a supervisor that is provably gone, and is removed; one that cannot be is never touched.
The place is on the host itself, by machine id, since homes are often one NFS for many hosts.
"""

import errno
import fcntl
import json
import os
import time
from typing import Any, Dict, Iterator, Optional, Tuple

from .plan import Plan

PLACE = "/var/tmp/clusterkit-locks"
# Whoever looks at the holds does so one after the other, for a few milliseconds.
_TURN_LIMIT = 5.0


class Hold:
    """This run's hold of this host. `take` it once, `release` it at the end."""

    def __init__(self, plan: Plan, place: str = PLACE) -> None:
        self._plan = plan
        self._folder = os.path.join(place, _machine_id())
        self._path = os.path.join(self._folder, "%s.%d.json" % (plan.run_id, plan.node_rank))
        self._file: Optional[int] = None

    def take(self) -> str:
        """Hold GPUs and ports; "", or who holds one of them. Raises OSError where there is no room."""
        wanted = self._plan.hold
        if wanted is None:
            return ""
        _make_public(os.path.dirname(self._folder))
        _make_public(self._folder)
        turn = _turn(self._folder)
        try:
            for other in _living(self._folder):
                problem = _conflict(self._plan, wanted, other)
                if problem:
                    return problem
            self._write(wanted)
        finally:
            if turn is not None:
                os.close(turn)
        return ""

    def release(self) -> None:
        """Nothing is held any more."""
        if self._file is not None:
            try:
                os.unlink(self._path)
            except OSError:
                pass
            os.close(self._file)
            self._file = None

    def _write(self, wanted: Dict[str, Any]) -> None:
        """The file has its lock before it has its name."""
        said = {
            "lock": 1,
            "run_id": self._plan.run_id,
            "node_rank": self._plan.node_rank,
            "owner": wanted.get("owner", ""),
            "since": time.time(),
            "pid": os.getpid(),
            "ports": list(self._plan.port_window),
            "devices": wanted.get("devices"),
        }
        beside = self._path + ".part"
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(file, json.dumps(said).encode("ascii") + b"\n")
            os.fchmod(file, 0o644)  # Every user of the host may know who holds it.
            os.rename(beside, self._path)
        except BaseException:
            os.close(file)
            raise
        self._file = file


def _machine_id() -> str:
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            with open(path) as file:
                name = file.read().strip()
        except OSError:
            continue
        if name.replace("-", "").isalnum():
            return name
    return "host"


def _make_public(path: str) -> None:
    """A folder as /tmp is: everybody may put something in, and remove only what is his own."""
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        if error.errno == errno.EEXIST:
            return
        raise
    os.chmod(path, 0o1777)


def _turn(folder: str) -> Optional[int]:
    """An open file that only one of us has locked; None if it was not to be had in time.

    Holds are then looked at without it: what could go wrong is what went wrong before there were any.
    """
    path = os.path.join(folder, ".turn")
    try:
        # Not opened for writing: the file may be another user's, and the lock is all that is wanted.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        except OSError:
            return None
    end = time.monotonic() + _TURN_LIMIT
    while time.monotonic() < end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            time.sleep(0.01)
    os.close(file)
    return None


def _living(folder: str) -> Iterator[Dict[str, Any]]:
    """What the holds of living supervisors say; those of dead ones are removed where that is allowed."""
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json"):
            continue
        path = os.path.join(folder, name)
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            if _is_dead(file):
                _unlink(path)
                continue
            said = json.loads(os.read(file, 1 << 16).decode("utf-8"))
            if isinstance(said, dict):
                yield said
        except (OSError, ValueError):
            continue
        finally:
            os.close(file)


def _is_dead(file: int) -> bool:
    """True if no process has locked the file, which its supervisor did before it got its name."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # Another user's: it holds nothing, and he removes it when he looks.


def _conflict(plan: Plan, wanted: Dict[str, Any], other: Dict[str, Any]) -> str:
    """Why this run cannot have what it wants beside that one; "" if it can."""
    if other.get("run_id") == plan.run_id:
        return ""
    shared = sorted(set(wanted.get("devices") or ()) & set(other.get("devices") or ()))
    first, last = _ports(other)
    if shared:
        what = "GPU %s" % ",".join(map(str, shared))
    elif first <= plan.port_window[1] and plan.port_window[0] <= last:
        what = "a port of %d-%d" % plan.port_window
    else:
        return ""
    age = max(0.0, time.time() - float(other.get("since") or 0.0))
    words = "%s is held by run %s of %s for %s"
    return words % (what, other.get("run_id"), other.get("owner") or "unknown", _span(age))


def _ports(other: Dict[str, Any]) -> Tuple[int, int]:
    ports = other.get("ports") or [0, -1]
    return int(ports[0]), int(ports[1])


def _span(seconds: float) -> str:
    if seconds < 120:
        return "%d s" % seconds
    return "%d min" % (seconds / 60) if seconds < 7200 else "%d h" % (seconds / 3600)
