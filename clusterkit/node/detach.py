"""`start`: the supervisor gets a life of its own, apart from the ssh session that brought it."""

import os
import sys
import time
from typing import Dict, List, Tuple

from . import control, processes, record
from .files import RunFiles, last_bytes
from .plan import Plan

# From the fork until the supervisor answers on its socket; a loaded machine starts an interpreter slowly.
START_LIMIT = 10.0


class StartError(Exception):
    """The supervisor does not run; the message says why."""


def start(files: RunFiles, plan: Plan) -> None:
    """The supervisor of this run and node answers, or has ended with a last state. Raises StartError."""
    if control.state_of(plan) is not None:
        return
    if _has_ended(files, plan):
        raise StartError("this run has ended; a run is started once")
    pid = _spawn(files, plan)
    end = time.monotonic() + START_LIMIT
    while time.monotonic() < end:
        if control.state_of(plan, timeout=1.0) is not None:
            return
        if processes.process(pid) is None:
            if _has_ended(files, plan):
                return  # It could not do its work, and has said why in its last state.
            raise StartError("the supervisor ended at once: %s" % _last_words(files))
        time.sleep(0.02)
    raise StartError("the supervisor (pid %d) did not answer for %g s" % (pid, START_LIMIT))


def _has_ended(files: RunFiles, plan: Plan) -> bool:
    """This run is over here. What earlier attempts left behind does not count once a new one was staged."""
    state = record.written(files)
    return record.is_final(state) and state is not None and state.get("attempt", 0) >= plan.attempt


def _last_words(files: RunFiles) -> str:
    lines = last_bytes(files.supervisor_log, 2000).decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it left no word in %s" % files.supervisor_log


def _spawn(files: RunFiles, plan: Plan) -> int:
    """Fork twice, so that the supervisor belongs to no session of ours; its pid."""
    news_read, news_write = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        raise StartError("no process can be made: %s" % error.strerror)
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _become_supervisor(files, plan, news_write)
        finally:
            os._exit(0)
    os.close(news_write)
    os.waitpid(child, 0)
    with os.fdopen(news_read, "rb") as news:
        pid, problem = _understand(news.read())
    if problem:
        raise StartError("the supervisor could not be started: %s" % problem)
    return pid


def _understand(news: bytes) -> Tuple[int, str]:
    """The supervisor's pid, and what went wrong before it was one."""
    pid, _, problem = news.decode("utf-8", "replace").partition("\n")
    if not pid:
        raise StartError("no process can be made: its first child died")
    return int(pid), problem.strip()


def _become_supervisor(files: RunFiles, plan: Plan, news: int) -> None:
    """In the grandchild: never returns."""
    os.write(news, b"%d\n" % os.getpid())
    try:
        umask = os.umask(0o077)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(files.supervisor_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _close_all_but(news)
        # The marks have to be in the environment that the process is started with: /proc shows no other.
        os.execve(sys.executable, _command(files, umask), _environment(plan))
    except OSError as error:
        os.write(news, ("%s: %s" % (error.filename, error.strerror)).encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _command(files: RunFiles, umask: int) -> List[str]:
    # -I: a PYTHONPATH of the login environment must not put its modules in the place of the library's.
    return [sys.executable, "-I", files.agent, "supervise", files.directory, "--umask", "%o" % umask]


def _environment(plan: Plan) -> Dict[str, str]:
    environ = dict(os.environ)
    environ[processes.RUN_MARK] = plan.run_id
    environ[processes.NODE_MARK] = str(plan.node_rank)
    return environ


def _close_all_but(kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            try:
                os.close(int(name))
            except OSError:
                pass
