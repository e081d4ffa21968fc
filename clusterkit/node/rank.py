"""The rank entry: Paddle's launcher starts it instead of the script, and it records how the script ends."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from . import processes, stacks
from .files import RunFiles, make_private_directory, read_json, write_atomically
from .plan import Plan, PlanError, open_run

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_NOT_FOUND = 127
_RECORD_SIZE = 1024


class WrongWorld(Exception):
    """The launcher formed another world than the planned one."""


def local_rank(environ: Dict[str, str]) -> int:
    """The local rank that Paddle's launcher gave this process; 0 if it gave none."""
    for name in ("PADDLE_RANK_IN_NODE", "PADDLE_LOCAL_RANK"):
        if environ.get(name, "").isdigit():
            return int(environ[name])
    return 0


def check_world(plan: Plan, environ: Dict[str, str]) -> None:
    """Raises WrongWorld if this process is not the rank that the plan says, of as many as it says."""
    local = local_rank(environ)
    size, rank = environ.get("PADDLE_TRAINERS_NUM"), environ.get("PADDLE_TRAINER_ID")
    if size != str(plan.world_size):
        raise WrongWorld("the launcher formed a world of %s ranks, planned are %d" % (size, plan.world_size))
    if not 0 <= local < len(plan.ranks):
        raise WrongWorld(
            "the launcher started local rank %d, planned are %d ranks" % (local, len(plan.ranks))
        )
    if rank != str(plan.ranks[local]):
        words = "the launcher made local rank %d global rank %s, planned is %d"
        raise WrongWorld(words % (local, rank, plan.ranks[local]))


class Record:
    """ranks/LOCAL.json: what became of this rank."""

    def __init__(self, files: RunFiles, local: int) -> None:
        self._path = files.rank(local)
        me = processes.process(os.getpid())
        self._values: Dict[str, Any] = {
            "local_rank": local,
            "pid": os.getpid(),
            "born": me.born if me else 0,
            "child": None,
            "started_at": None,
            "ended_at": None,
            "exit_code": None,
            "signal": None,
            "failure": None,
        }

    def reserve(self) -> None:
        """The record has its room on the disk. Raises OSError."""
        write_atomically(self._path, self._data())

    def _data(self) -> bytes:
        return json.dumps(self._values).encode("ascii").ljust(_RECORD_SIZE) + b"\n"

    def note(self, **values: Any) -> None:
        """The record on disk says this too, also where the disk has filled up since `reserve`."""
        self._values.update(values)
        data = self._data()
        try:
            write_atomically(self._path, data)
        except OSError as error:
            _say("%s cannot be replaced: %s" % (self._path, error.strerror))
            self._overwrite(data)

    def _overwrite(self, data: bytes) -> None:
        try:
            with open(self._path, "r+b") as file:
                file.write(data)
        except OSError as error:
            _say("%s cannot be written: %s" % (self._path, error.strerror))


def run(run_dir: str, command: List[str]) -> int:
    """Run SCRIPT with its arguments as this rank; returns the exit code to end with (negative: a signal)."""
    environ = dict(os.environ)
    try:
        files, plan = open_run(run_dir)
    except PlanError as error:
        return _refuse(str(error), 1)
    record = Record(files, local_rank(environ))
    try:
        make_private_directory(files.ranks)
        record.reserve()
    except OSError as error:
        return _refuse("%s: %s; the script was not started" % (error.filename, error.strerror), 1)
    try:
        check_world(plan, environ)
    except WrongWorld as error:
        now = time.time()
        failure = {"kind": "world size", "detail": str(error)}
        record.note(started_at=now, ended_at=now, exit_code=1, failure=failure)
        return _refuse("%s; the script was not started" % error, 1)
    if processes.UMASK in environ:
        os.umask(int(environ.pop(processes.UMASK), 8))
    environ.update(read_json(files.secrets) or {})
    stacks.arrange(files, local_rank(environ), environ)
    return _supervised(record, _script(command), environ)


def _refuse(message: str, code: int) -> int:
    _say(message)
    return code


def _say(message: str) -> None:
    """A line of ours in the rank's own log; a full disk has no room for it, and is no reason to end."""
    try:
        sys.stderr.write("clusterkit: %s\n" % message)
        sys.stderr.flush()
    except OSError:
        pass


def _script(command: List[str]) -> List[str]:
    """How Paddle's launcher itself would start the script."""
    return [sys.executable, "-u"] + command if command[0].endswith(".py") else command


def _supervised(record: Record, command: List[str], environ: Dict[str, str]) -> int:
    # If the launcher is killed, the script shall get its chance to save, as with the launcher's own SIGTERM.
    launcher = os.getppid()
    waiting: List[int] = []
    child: Optional[subprocess.Popen[bytes]] = None

    def forward(signum: int, _frame: Any) -> None:
        if child is None:
            waiting.append(signum)
        else:
            _signal_group(child.pid, signum)

    for signum in _FORWARDED:
        signal.signal(signum, forward)
    processes.die_with_parent(signal.SIGTERM, launcher)
    started_at = time.time()
    child, problem = _start(command, environ)
    if child is None:
        record.note(started_at=started_at, ended_at=time.time(), exit_code=_NOT_FOUND)
        return _refuse(problem, _NOT_FOUND)
    for number in waiting:
        _signal_group(child.pid, number)
    record.note(child=child.pid, started_at=started_at)
    code = child.wait()
    ended_at = time.time()
    if code < 0:
        record.note(ended_at=ended_at, signal=-code)
    else:
        record.note(ended_at=ended_at, exit_code=code)
    return code


def _start(command: List[str], environ: Dict[str, str]) -> Tuple[Optional["subprocess.Popen[bytes]"], str]:
    """The script's process, in a process group of its own, or a sentence that says why there is none.

    Paddle's launcher signals its ranks by process group; in a group of its own the script gets each
    signal once, through us.
    """
    entry = os.getpid()

    def in_child() -> None:
        os.setpgid(0, 0)
        processes.die_with_parent(signal.SIGKILL, entry)

    if command[:2] == [sys.executable, "-u"] and not os.path.exists(command[2]):
        return None, "the script %s does not exist in %s" % (command[2], os.getcwd())
    try:
        return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, preexec_fn=in_child), ""
    except OSError as error:
        return None, "%s cannot be started in %s: %s" % (command[0], os.getcwd(), error.strerror)


def _signal_group(group: int, signum: int) -> None:
    try:
        os.killpg(group, signum)
    except OSError:
        pass


def end_like(code: int) -> None:
    """This process ends as the script did: by the same signal, so that the launcher sees the same."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            signal.signal(-code, signal.SIG_DFL)
        except OSError:
            pass  # SIGKILL and SIGSTOP have no handler.
        os.kill(os.getpid(), -code)
    sys.exit(code if code >= 0 else 128 - code)
