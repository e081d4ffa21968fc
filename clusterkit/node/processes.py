"""Which processes belong to a run, and how they are ended: descendants and marked ones, read from /proc."""

import ctypes
import os
import signal
import time
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set

RUN_MARK = "CLUSTERKIT_RUN_ID"
NODE_MARK = "CLUSTERKIT_NODE_RANK"
# How the rank entry learns the umask that the script shall have.
UMASK = "CLUSTERKIT_UMASK"

# How long killed processes may take to disappear before they are reported as left (uninterruptible sleep).
PROOF_LIMIT = 10.0
# What is still there when the launcher has ended was left behind by the script: it gets this much time.
STRAGGLER_GRACE = 5.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """One process; `born` (clock ticks since boot) tells it from a later one with the same pid."""

    pid: int
    parent: int
    state: str
    born: int


def process(pid: int) -> Optional[Process]:
    """What /proc says about a pid, None if there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold anything, blanks and parentheses too.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Process(pid, int(fields[1]), fields[0].decode("ascii"), int(fields[19]))


def is_alive(pid: int, born: int) -> bool:
    """True while the process with this pid and birth runs (a zombie does not)."""
    found = process(pid)
    return found is not None and found.born == born and found.state not in ("Z", "X")


def table() -> Dict[int, Process]:
    """All processes that this user can see, zombies left out."""
    found: Dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            entry = process(int(name))
            if entry is not None:
                found[entry.pid] = entry
    return found


def marked(run_id: str, node_rank: int, pids: Iterable[int]) -> Set[int]:
    """Those of `pids`, of the same user, that were started with this run's and this node's mark.

    Two nodes of one run may share a machine: the run's id alone would find both.
    """
    wanted = {b"%s=%s" % (RUN_MARK.encode(), run_id.encode()), b"%s=%d" % (NODE_MARK.encode(), node_rank)}
    me = os.geteuid()
    found = set()
    for pid in pids:
        try:
            if os.stat("/proc/%d" % pid).st_uid != me:
                continue
            with open("/proc/%d/environ" % pid, "rb") as file:
                if wanted.issubset(file.read().split(b"\0")):
                    found.add(pid)
        except OSError:
            continue
    return found


def descendants(roots: Iterable[int], processes: Dict[int, Process]) -> Set[int]:
    """Every process that has one of `roots` among its ancestors (the roots themselves left out)."""
    children: Dict[int, List[int]] = {}
    for entry in processes.values():
        children.setdefault(entry.parent, []).append(entry.pid)
    found: Set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def ancestors(pid: int, processes: Dict[int, Process]) -> Set[int]:
    """A process and everything above it."""
    found: Set[int] = set()
    while pid in processes and pid not in found:
        found.add(pid)
        pid = processes[pid].parent
    return found


def of_run(run_id: str, node_rank: int, supervisor: Optional[int] = None) -> Dict[int, Process]:
    """The living processes of this node's run.

    With `supervisor` (the caller, a subreaper): its descendants, even where they emptied their
    environment, and the marked ones, but not itself. Without: the marked ones and their descendants,
    but not the caller.
    """
    processes = table()
    found = marked(run_id, node_rank, processes)
    found |= descendants([supervisor] if supervisor else found, processes)
    found -= ancestors(os.getpid(), processes)
    return {pid: processes[pid] for pid in found if processes[pid].state not in ("Z", "X")}


def send(signum: int, processes: Iterable[Process]) -> None:
    """Each process that still is the one it was has got the signal."""
    for entry in processes:
        current = process(entry.pid)
        if current is not None and current.born == entry.born:
            try:
                os.kill(entry.pid, signum)
            except OSError:
                pass


class Ending:
    """Ends what `find` finds: SIGTERM, `grace` seconds, SIGKILL until nothing is left, and the proof.

    Call `step` again and again; it never blocks. `killed` are the pids that needed SIGKILL, `left` those
    that it did not end.
    """

    def __init__(self, find: Callable[[], Dict[int, Process]], grace: float, now: float) -> None:
        self._find = find
        self._kill_at = now + grace
        self._termed: Set[int] = set()
        self._next_look = now
        self._give_up_at: Optional[float] = None
        self.killed: Set[int] = set()
        self.left: List[int] = []

    def hurry(self, now: float, grace: float) -> None:
        """SIGKILL comes no later than `grace` seconds from now."""
        self._kill_at = min(self._kill_at, now + grace)

    def step(self, now: float, may_signal: bool = True) -> bool:
        """One look, with the signals that are due; True once nothing is left or we have to give up.

        While `may_signal` is false somebody else is stopping them (the launcher, which forwards SIGTERM).
        """
        if now < self._next_look:
            return False
        began = time.monotonic()
        found = self._find()
        # A scan of a machine with many processes is not repeated at once.
        self._next_look = now + max(0.1, 5 * (time.monotonic() - began))
        if not found:
            self.left = []
            return True
        if now >= self._kill_at:
            return self._kill(found, now)
        if may_signal:
            fresh = [entry for entry in found.values() if entry.pid not in self._termed]
            send(signal.SIGTERM, fresh)
            self._termed.update(entry.pid for entry in fresh)
        return False

    def _kill(self, found: Dict[int, Process], now: float) -> bool:
        send(signal.SIGKILL, found.values())
        self.killed.update(found)
        self.left = sorted(found)
        if self._give_up_at is None:
            self._give_up_at = now + PROOF_LIMIT
        self._next_look = now + 0.02
        return now >= self._give_up_at


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def become_subreaper() -> bool:
    """Orphans among our descendants become our children from now on. False where the kernel cannot."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int, parent: int) -> None:
    """This process gets `signum` when `parent`, which started it, ends; at once if it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)
