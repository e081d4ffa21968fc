"""A node's own life: gate, prepared, starting, running, stopping, ended; and what failed on this node."""

import os
import time
from typing import Any, Dict, Optional

from . import attempts, processes, stacks, times
from .container import Removal
from .files import RunFiles, last_bytes, make_private_directory, remove
from .launcher import Launcher
from .plan import Plan
from .ranks import Ranks

_SIGTERM = 15
# A launcher whose ranks have all ended well, and that does not end itself, is ended after this time.
_LINGER = 30.0
# Ranks that end by SIGTERM this close to the launcher's own death died of it.
_TOGETHER = 1.0
_LAUNCHER_LINES = 10

NO_FAILURE: Dict[str, Any] = {
    "kind": "",
    "rank": None,
    "exit_code": None,
    "signal": None,
    "at": None,
    "detail": "",
}


class Life:
    """What happens on this host. The supervisor calls `observe` about ten times a second."""

    def __init__(self, plan: Plan, files: RunFiles, umask: int, base: Optional[Plan] = None) -> None:
        """`plan` and `files` are those of one attempt, `base` the run's plan as it was staged."""
        self._base = base or plan
        self._plan = plan
        self._files = files
        self.state = "gate"
        self.ended_at: Optional[float] = None
        self.failure: Optional[Dict[str, Any]] = None
        self.ranks = Ranks(plan, files)
        self.launcher = Launcher(plan, files, umask)
        self._ending: Optional[processes.Ending] = None
        self._ranks_done_at: Optional[float] = None
        self._sigterm_seen_at: Optional[float] = None
        self._hurried = False
        self._removal: Optional[Removal] = None
        self._dumped: Optional[float] = None
        self._clock = times.Clock()

    @property
    def attempt(self) -> int:
        """Which attempt of the run this is; the first is 0."""
        return self._plan.attempt

    @property
    def left(self) -> Any:
        """The pids that not even SIGKILL ended."""
        return self._ending.left if self._ending and self.state == "ended" else []

    def fail(self, kind: str, detail: str, **more: Any) -> None:
        """Note the node's first failure."""
        if self.failure is None:
            self.failure = dict(NO_FAILURE, kind=kind, at=time.time(), detail=detail)
            self.failure.update(more)

    def prepare(self) -> None:
        """The node could start now, or has failed and says why; a container takes its time until then."""
        if self.launcher.pid is not None:
            return
        try:
            make_private_directory(self._files.ranks)
            attempts.begin(self._files, self._plan, self._base)
            self.launcher.prepare()
        except OSError as error:
            self.fail("launcher", "cannot prepare the start: %s: %s" % (error.filename, error.strerror))
            return
        if self.launcher.is_ready:
            self.state = "prepared"

    def start(self, at: float) -> None:
        """The launcher starts when this host's clock shows `at`."""
        self.launcher.start(at)
        self.state = "starting"

    def stop(self, grace: float, now: float) -> None:
        """The job on this host is being ended, and will have ended `grace` seconds from now."""
        if self.state == "ended":
            return
        if self._ending is None:
            self.launcher.ask_to_stop()
            self._end(grace, now)
        else:
            self._ending.hurry(now, grace)

    def dump_once(self, hang: Optional[Dict[str, Any]]) -> None:
        """Every rank of a job that hangs has been asked for its stacks, once for each hang."""
        if hang is None or hang["since"] == self._dumped:
            return
        self._dumped = hang["since"]
        for pid in self.ranks.running():
            stacks.ask(pid)

    def observe(self, now: float) -> None:
        """Notice what has happened since the last call. `now` is the monotonic clock."""
        self._reap()
        problem = self.launcher.look()
        self.ranks.look()
        self._clock.note(self.ranks.times(), now)
        if self.state == "gate" and self.launcher.is_ready:
            self.state = "prepared"
        is_on = self.state in ("prepared", "starting", "running") or self.launcher.pid is not None
        if is_on and self._ending is None:
            self._watch(problem, now)
        if self._ending is not None:
            self._go_on_ending(self._ending, now)

    def _reap(self) -> None:
        """As a subreaper we inherit every orphan of the job."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.launcher.pid:
                self.launcher.ended(status, time.time())

    def _watch(self, problem: Optional[str], now: float) -> None:
        if self.state == "starting" and self.ranks.all_started:
            self.state = "running"
        rank_failure = self.ranks.failure()
        if problem:
            self.fail("launcher", problem, at=self.ranks.seen_last())
        elif self._launcher_was_killed(rank_failure):
            self._fail_by_launcher(rank_failure)
        elif rank_failure:
            if not self._launcher_may_be_dying(rank_failure, now):
                self.fail(**rank_failure)
        elif self.launcher.ended_at is not None:
            if self.launcher.exit == 0 and self.ranks.all_ended:
                self._end(processes.STRAGGLER_GRACE, now)
            else:
                self._fail_by_launcher(None)
        elif self.ranks.all_ended:
            self._do_not_linger(now)

    def _launcher_was_killed(self, rank_failure: Optional[Dict[str, Any]]) -> bool:
        if self.launcher.exit is None or self.launcher.exit >= 0 or self.launcher.ended_at is None:
            return False
        if rank_failure is None:
            return True
        return _by_sigterm(rank_failure) and bool(rank_failure["at"] > self.launcher.ended_at - _TOGETHER)

    def _launcher_may_be_dying(self, rank_failure: Dict[str, Any], now: float) -> bool:
        """Its death reaches the ranks (SIGTERM) a moment before it reaches us."""
        if not self.launcher.is_running or not _by_sigterm(rank_failure):
            return False
        if self._sigterm_seen_at is None:
            self._sigterm_seen_at = now
        return now - self._sigterm_seen_at < _TOGETHER

    def _fail_by_launcher(self, rank_failure: Optional[Dict[str, Any]]) -> None:
        code = self.launcher.exit
        at = self.launcher.ended_at or time.time()
        if rank_failure:
            at = min(at, rank_failure["at"])
        by_signal = code is not None and code < 0
        self.fail(
            "launcher",
            self._how_launcher_ended(),
            exit_code=None if by_signal else code,
            signal=-code if by_signal and code is not None else None,
            at=at,
        )

    def _how_launcher_ended(self) -> str:
        code = self.launcher.exit or 0
        words = "killed by signal %d" % -code if code < 0 else "it exited with %d" % code
        absent = [str(rank["rank"]) for rank in self.ranks.states() if rank["started_at"] is None]
        if absent:
            words += ", rank%s %s never started" % ("s" * (len(absent) != 1), ", ".join(absent))
        said = last_bytes(self._plan.launcher_log, 4000).decode("utf-8", "replace").splitlines()
        # What it says while all is well explains nothing.
        lines = [line for line in said if line.strip() and " INFO" not in line][-_LAUNCHER_LINES:]
        return "\n".join([words, *lines])

    def _do_not_linger(self, now: float) -> None:
        if self._ranks_done_at is None:
            self._ranks_done_at = now
        elif now - self._ranks_done_at > _LINGER:
            self.launcher.ask_to_stop()
            self._end(processes.STRAGGLER_GRACE, now)

    def _end(self, grace: float, now: float) -> None:
        self.state = "stopping"
        run_id, node_rank, supervisor = self._plan.run_id, self._plan.node_rank, os.getpid()
        self._ending = processes.Ending(lambda: processes.of_run(run_id, node_rank, supervisor), grace, now)

    def _go_on_ending(self, ending: processes.Ending, now: float) -> None:
        if self.state == "ended":
            return
        launcher_gone = not self.launcher.is_running
        if self.ranks.none_runs and not self._hurried:
            # The grace is the scripts'. A launcher alone may hang for ever, as Paddle's does now and then.
            self._hurried = True
            ending.hurry(now, processes.STRAGGLER_GRACE)
        if self._removal is None and ending.step(now, may_signal=launcher_gone):
            self._reap()
            self._removal = Removal(self._plan)
        if self._removal is not None and self._removal.step(now):
            self.ranks.look()
            if self._plan.attempt >= self._plan.restarts.most:
                remove(self._files.secrets)
            self.ended_at = time.time()
            self.state = "ended"


def _by_sigterm(rank_failure: Dict[str, Any]) -> bool:
    return bool(rank_failure["signal"] == _SIGTERM or rank_failure["exit_code"] == 128 + _SIGTERM)
