"""`enter`: the first process in a container. It waits for the start, runs node.sh, and stays to the end.

What it says to the host is how the launcher ended; that it is gone says the same of the whole container.
"""

import os
import resource
import select
import signal
import subprocess
import time
from typing import Any, Dict, Optional

from . import attempts, line, processes
from .files import RunFiles
from .launcher import sleep_until
from .plan import Plan, open_run

# Deep recursion in operators takes more than the usual 8 MiB of stack.
_STACK = 64 << 20


def main(run_dir: str) -> int:
    """Run the launcher of this run inside; 0 once everything has ended. Raises PlanError, OSError."""
    return Inside(*attempts.current(*open_run(run_dir))).run()


class Inside:
    """The life of a container."""

    def __init__(self, files: RunFiles, plan: Plan) -> None:
        self._files = files
        self._plan = plan
        self._line = line.pick_up(files)
        self._launcher: Optional[subprocess.Popen[bytes]] = None
        self._ended = False
        self._stop = False
        self._alone_since: Optional[float] = None
        self._start: Optional[Dict[str, Any]] = None if self._line else {"start_at": 0.0, "umask": 0o022}
        self._awake, kernels = os.pipe()
        for end in (self._awake, kernels):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(kernels)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)

    def _on_stop(self, _signum: int, _frame: object) -> None:
        self._stop = True

    def run(self) -> int:
        """Until the last process here has ended."""
        # Where `container_args` let us see the host's processes, we are not the first one.
        processes.become_subreaper()
        if self._line:
            self._line.say(waiting=os.getpid())
        while self._start is None:
            self._wait(60.0)
            if self._stop or self._alone_since is not None:
                return 0
        self._launch(self._start)
        while not self._is_over():
            self._wait(1.0)
            self._heed()
        return 0

    def _say(self, **message: Any) -> None:
        if self._line:
            self._line.say(**message)

    def _wait(self, seconds: float) -> None:
        """Up to `seconds`, or until something happens: a child's end, a signal, a word from the host."""
        reads = [self._awake]
        if self._line and not self._line.is_closed:
            reads.append(self._line.reads)
        if self._awake in select.select(reads, [], [], seconds)[0]:
            try:
                os.read(self._awake, 4096)
            except BlockingIOError:
                pass
        for message in self._line.hear() if self._line and not self._line.is_closed else []:
            if "start_at" in message:
                self._start = message
            elif "stop" in message:
                self._stop = True
        if self._line and self._line.is_closed and self._alone_since is None:
            # Whoever stands for us on the host was killed: nobody would end us.
            self._alone_since = time.monotonic()
            self._stop = True

    def _launch(self, start: Dict[str, Any]) -> None:
        """node.sh runs, from the moment that was planned."""
        sleep_until(float(start["start_at"]))
        os.umask(int(start["umask"]))
        try:
            log = os.open(self._plan.launcher_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._say(started=time.time())
            self._launcher = subprocess.Popen(
                ["/bin/sh", self._files.node_script],
                cwd=self._plan.workdir,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                # Paddle repeats local rank 0's log on stdout; it is in that rank's file already.
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                preexec_fn=_raise_stack,
            )
            os.close(log)
        except OSError as error:
            self._say(failed="the launcher could not be started: %s: %s" % (error.filename, error.strerror))
            self._ended = True

    def _environment(self) -> Dict[str, str]:
        """The image's own, less what would override the launcher; node.sh adds the job's."""
        unset = self._plan.container.unset if self._plan.container else []
        return {name: value for name, value in os.environ.items() if name not in unset}

    def _heed(self) -> None:
        if not self._stop:
            return
        self._stop = False
        if not self._ended and self._launcher is not None:
            self._signal(self._launcher.pid, signal.SIGTERM)
        elif os.getpid() == 1:
            # All that are left, and nobody else's: the numbers here are the container's own.
            self._signal(-1, signal.SIGTERM)

    @staticmethod
    def _signal(pid: int, signum: int) -> None:
        try:
            os.kill(pid, signum)
        except OSError:
            pass

    def _is_over(self) -> bool:
        """Reap whoever has ended; True once nobody is left, or we were alone for longer than the grace."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                break
            if self._launcher is not None and pid == self._launcher.pid:
                self._ended = True
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                self._launcher.returncode = code
                self._say(ended=code)
        alone = self._alone_since
        return alone is not None and time.monotonic() > alone + self._plan.timeouts.grace


def _raise_stack() -> None:
    """The launcher may use this much stack, where the runtime's hard limit lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    most = _STACK if hard == resource.RLIM_INFINITY else min(_STACK, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_STACK, (most, hard))
