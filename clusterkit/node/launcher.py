"""Paddle's launcher as this node's child: forked early, started exactly on time, watched, asked to stop."""

import os
import select
import signal
import time
import traceback
from typing import Dict, Optional

from . import processes
from .files import RunFiles
from .plan import Plan

# How long the child waits for the time to start before it gives up (its parent may be stuck).
_WAIT_LIMIT = 120.0
# The start is announced about half a second before; more than this is a clock gone wrong.
_LONGEST_LEAD = 5.0


def environment(plan: Plan) -> Dict[str, str]:
    """What the launcher may see of our own environment, and the marks of the run.

    Everything else that the job needs is written in node.sh.
    """
    kept = {name: os.environ[name] for name in plan.keep_environment if name in os.environ}
    kept[processes.RUN_MARK] = plan.run_id
    kept[processes.NODE_MARK] = str(plan.node_rank)
    return kept


class Launcher:
    """`sh node.sh`. All times are this host's clock."""

    def __init__(self, plan: Plan, files: RunFiles, umask: int) -> None:
        self._plan = plan
        self._files = files
        self._umask = umask
        self._go = -1
        self._news = -1
        self._said = b""
        self.pid: Optional[int] = None
        self.started_at: Optional[float] = None
        self.ended_at: Optional[float] = None
        self.exit: Optional[int] = None

    def prepare(self) -> None:
        """The child exists and waits for `start`. Raises OSError (no process, no log file, no workdir)."""
        os.makedirs(self._plan.log_dir, exist_ok=True)
        log = os.open(self._plan.launcher_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        null = os.open(os.devnull, os.O_RDWR)
        go_read, self._go = os.pipe()
        self._news, news_write = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(self._go)
            os.close(self._news)
            self._child(parent, go_read, news_write, null, log)
        self.pid = pid
        for file in (go_read, news_write, null, log):
            os.close(file)
        os.set_blocking(self._news, False)

    def start(self, at: float) -> None:
        """The child starts the launcher when this host's clock shows `at`, at once if that has passed."""
        try:
            os.write(self._go, b"%.6f\n" % at)
        except OSError:
            pass  # The child has gone; that is noticed when it is reaped.

    @property
    def is_running(self) -> bool:
        """True from `prepare` until the process has ended."""
        return self.pid is not None and self.ended_at is None

    def look(self) -> Optional[str]:
        """Read what the child said about its start; a sentence if it could not start."""
        if self._news < 0:
            return None
        try:
            for data in iter(lambda: os.read(self._news, 4096), b""):
                self._said += data
        except BlockingIOError:
            return None
        os.close(self._news)
        self._news = -1
        return self._understand(self._said.decode("utf-8", "replace"))

    def _understand(self, said: str) -> Optional[str]:
        lines = said.splitlines()
        if lines and lines[0].startswith("started "):
            self.started_at = float(lines[0].split()[1])
            lines = lines[1:]
        return "; ".join(lines) if lines else None

    def ended(self, status: int, at: float) -> None:
        """Note how it ended (`status` of waitpid): the exit code, or minus the signal."""
        self.ended_at = at
        self.exit = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def ask_to_stop(self) -> None:
        """SIGTERM; Paddle's launcher passes it on to its ranks and gives them 30 s."""
        if self._go >= 0:
            os.close(self._go)  # A child that still waits for its time gives up.
            self._go = -1
        if self.is_running and self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)

    def _child(self, parent: int, go: int, news: int, null: int, log: int) -> None:
        """In the child: never returns, never runs anything of the parent's."""
        try:
            self._become_launcher(parent, go, news, null, log)
        except BaseException as error:
            words = "%s: %s" % (error.filename, error.strerror) if isinstance(error, OSError) else repr(error)
            try:
                os.write(news, ("the launcher could not be started: %s\n" % words).encode("utf-8", "replace"))
                os.write(log, traceback.format_exc().encode("utf-8", "replace"))
            except OSError:
                pass
        finally:
            os._exit(127)

    def _become_launcher(self, parent: int, go: int, news: int, null: int, log: int) -> None:
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(signum, signal.SIG_DFL)
        processes.die_with_parent(signal.SIGTERM, parent)
        os.setsid()
        os.dup2(null, 0)
        # Paddle repeats local rank 0's log on stdout; it is in that rank's file already.
        os.dup2(null, 1)
        os.dup2(log, 2)
        os.chdir(self._plan.workdir)
        # Paddle's launcher writes the job's whole environment beside the logs. The rank entry gives the
        # user's own umask back to the script.
        os.umask(0o077)
        environ = environment(self._plan)
        environ[processes.UMASK] = "%o" % self._umask
        at = self._wait_for_time(go)
        if at is None:
            os._exit(0)
        # From now on a clock that is set does no harm. No busy waiting at the end: where nodes share a
        # machine it would delay the other ones.
        due = time.monotonic() + min(at - time.time(), _LONGEST_LEAD)
        while time.monotonic() < due:
            time.sleep(max(0.0, due - time.monotonic()))
        os.write(news, b"started %.6f\n" % time.time())
        os.execve("/bin/sh", ["sh", self._files.node_script], environ)

    @staticmethod
    def _wait_for_time(go: int) -> Optional[float]:
        """The time to start; None if the parent went away or says nothing."""
        text = b""
        while not text.endswith(b"\n"):
            if not select.select([go], [], [], _WAIT_LIMIT)[0]:
                return None
            data = os.read(go, 64)
            if not data:
                return None
            text += data
        return float(text)
