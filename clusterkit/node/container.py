"""The host's side of a node's container: start it, stand for its launcher, and take it away in the end.

The supervisor's child is this program in the place of the launcher (docs/architecture.md, "Containers"). It
ends as the launcher inside did, and passes SIGTERM on to it.
"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from typing import Dict, List, Optional

from . import attempts, line
from .files import RunFiles, last_bytes, make_private_directory
from .plan import Plan, PlanError, open_run

# From `docker run` until the agent inside speaks. The gate for all nodes is not much longer.
START_LIMIT = 25.0
# How long the supervisor may take to say when to start.
_GO_LIMIT = 120.0
# How long the runtime may take to remove a container, and to answer a question.
REMOVE_LIMIT = 20.0
_ASK_LIMIT = 5.0
# Once the client has gone and nobody inside has spoken, how often to ask whether the container still is.
_DOUBT = 1.0

RUN_LABEL = "clusterkit.run_id"
NODE_LABEL = "clusterkit.node_rank"


class NoContainer(Exception):
    """There is no container, or none any more; one line says why."""


def main(run_dir: str, go: int, news: int, umask: int) -> int:
    """Stand for the launcher of this run; its exit code, or minus the signal that ended it."""
    try:
        files, plan = attempts.current(*open_run(run_dir))
        return Watch(files, plan, go, news, umask).run()
    except (NoContainer, PlanError) as error:
        words = str(error)
    except OSError as error:
        words = "%s: %s" % (error.filename, error.strerror)
    os.write(news, (words + "\n").encode("utf-8", "replace"))
    return 1


class Watch:
    """One container from its start to its end."""

    def __init__(self, files: RunFiles, plan: Plan, go: int, news: int, umask: int) -> None:
        assert plan.container is not None
        self._files = files
        self._plan = plan
        self._container = plan.container
        self._go = go
        self._news = news
        self._umask = umask
        self._supervisor = os.getppid()
        self._stopping_since: Optional[float] = None
        self._told_to_stop = False
        self._awake, kernels = os.pipe()
        for end in (self._awake, kernels):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(kernels)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)

    def _on_stop(self, _signum: int, _frame: object) -> None:
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()

    def run(self) -> int:
        """From `docker run` to the launcher's end. Raises NoContainer, OSError."""
        self._prepare()
        self._line = line.lay(self._files)
        self._start()
        self._tell("ready")
        start_at = self._wait_for_go()
        if start_at is None:
            return 0  # What waits inside sees that we have gone.
        self._line.say(start_at=start_at, umask=self._umask)
        return self._follow()

    def _tell(self, words: str) -> None:
        os.write(self._news, words.encode("utf-8", "replace") + b"\n")

    def _prepare(self) -> None:
        """A missing source of a volume is told: Docker would make an empty directory in its place.

        What the attempt before could not remove, since the daemon did not answer, is removed now.
        """
        for source in self._container.sources:
            try:
                os.stat(source)
            except FileNotFoundError:
                raise NoContainer("there is no %s on this host, which `volumes` mounts" % source)
            except OSError:
                pass  # What we may not see the runtime may.
        if self._container.home:
            make_private_directory(self._container.home)
        if self._container.checkpoints:
            os.makedirs(self._container.checkpoints, exist_ok=True)
        if self._plan.attempt:
            remove(self._plan)

    def _start(self) -> None:
        """The agent inside has spoken. Raises NoContainer."""
        with open(self._files.container_log, "wb") as log:
            client = subprocess.Popen(
                ["/bin/sh", self._files.container_script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + START_LIMIT
        ask_at = None
        while not self._line.hear():
            now = time.monotonic()
            code = client.poll()
            if code:
                raise NoContainer(why(self._said(), self._container.runtime))
            if self._line.is_closed:
                raise NoContainer("its container ended before anything was started")
            if self._stopping_since is not None:
                raise NoContainer("it was stopped while its container was being started")
            if now > end:
                raise NoContainer("its container gave no sign within %g s" % START_LIMIT)
            if code == 0:
                ask_at = now + _DOUBT if ask_at is None else ask_at
                if now > ask_at:
                    self._is_it_there()
                    ask_at = now + _DOUBT
            self._wait(0.2, [self._line.reads])

    def _said(self) -> str:
        return last_bytes(self._files.container_log, 4000).decode("utf-8", "replace")

    def _is_it_there(self) -> None:
        if found(self._plan) == []:
            words = "its container ended at once: python could not run %s inside" % self._files.agent
            raise NoContainer(words)

    def _wait(self, seconds: float, also: List[int]) -> List[int]:
        ready = select.select([self._awake, *also], [], [], seconds)[0]
        if self._awake in ready:
            try:
                os.read(self._awake, 4096)
            except BlockingIOError:
                pass
        return ready

    def _wait_for_go(self) -> Optional[float]:
        """When to start; None if nobody wants it any more. Raises NoContainer."""
        text = b""
        end = time.monotonic() + _GO_LIMIT
        while not text.endswith(b"\n"):
            ready = self._wait(1.0, [self._go, self._line.reads])
            if self._go in ready:
                data = os.read(self._go, 64)
                if not data:
                    return None
                text += data
            if self._stopping_since is not None or time.monotonic() > end:
                return None
            self._line.hear()
            if self._line.is_closed:
                raise NoContainer("its container ended before the start")
        return float(text)

    def _follow(self) -> int:
        """Until the launcher has ended: its exit code, or minus the signal. Raises NoContainer."""
        while True:
            self._wait(1.0, [self._line.reads])
            for message in self._line.hear():
                if "started" in message:
                    self._tell("started %.6f" % message["started"])
                elif "ended" in message:
                    return int(message["ended"])
                elif "failed" in message:
                    raise NoContainer(str(message["failed"]))
            if self._line.is_closed:
                raise NoContainer(self._how_it_went())
            self._pass_on_stop()

    def _how_it_went(self) -> str:
        if self._stopping_since is not None:
            return "its container was ended while it was being stopped"
        return "its container was killed (by somebody, for want of memory, or with its daemon)"

    def _pass_on_stop(self) -> None:
        """SIGTERM goes inside once. If our supervisor was killed, nobody else ends what does not heed it."""
        if self._stopping_since is None:
            return
        if not self._told_to_stop:
            self._told_to_stop = True
            self._line.say(stop=True)
        is_late = time.monotonic() > self._stopping_since + self._plan.timeouts.grace
        if is_late and os.getppid() != self._supervisor:
            remove(self._plan)


# Taking it away.


_REMOVE = r"""
for try in 1 2 3 4 5 6 7 8; do
    found=$("$@" ps --all --quiet --filter "label=$run" --filter "label=$node") || exit 1
    [ -n "$found" ] || exit 0
    "$@" rm --force --volumes $found >/dev/null
    sleep 0.25
done
echo "$found is still there" >&2
exit 1
"""


class Removal:
    """Takes the node's container away; `step` never blocks. On a bare host there is nothing to do."""

    def __init__(self, plan: Plan) -> None:
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._give_up_at = time.monotonic() + REMOVE_LIMIT
        if plan.container is not None:
            try:
                self._child = _remover(plan)
            except OSError as error:
                _log("the container could not be removed: %s" % error.strerror)

    def step(self, now: float) -> bool:
        """True once it is gone, or we give up: started with --rm, it goes when the daemon is back."""
        child = self._child
        if child is None or child.stdout is None:
            return True
        if select.select([child.stdout], [], [], 0)[0]:
            said = os.read(child.stdout.fileno(), 4096)
            if said:
                _log("the container: %s" % said.decode("utf-8", "replace").strip())
            else:
                self._close(child)
        elif now > self._give_up_at:
            _log("the container could not be removed within %g s" % REMOVE_LIMIT)
            child.kill()
            self._close(child)
        return self._child is None

    def _close(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        child.stdout.close()
        # The supervisor reaps every child, this one too.
        child.poll()
        self._child = None


def remove(plan: Plan) -> None:
    """The node's container is gone, or the supervisor's log says why not; blocks for REMOVE_LIMIT at most."""
    removal = Removal(plan)
    while not removal.step(time.monotonic()):
        time.sleep(0.05)


def _remover(plan: Plan) -> "subprocess.Popen[bytes]":
    assert plan.container is not None
    return subprocess.Popen(
        ["/bin/sh", "-c", _REMOVE, "sh"] + plan.container.runtime,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(plan),
        start_new_session=True,
    )


def found(plan: Plan) -> Optional[List[str]]:
    """The ids of the node's containers, by their labels; None if the runtime does not tell."""
    assert plan.container is not None
    labels = _labels(plan)
    words = [
        "ps",
        "--all",
        "--quiet",
        "--filter",
        "label=" + labels["run"],
        "--filter",
        "label=" + labels["node"],
    ]
    try:
        done = subprocess.run(
            plan.container.runtime + words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(plan),
            timeout=_ASK_LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("ascii", "replace").split() if done.returncode == 0 else None


def _labels(plan: Plan) -> Dict[str, str]:
    return {"run": "%s=%s" % (RUN_LABEL, plan.run_id), "node": "%s=%d" % (NODE_LABEL, plan.node_rank)}


def _environment(plan: Plan) -> Dict[str, str]:
    """What the client may see of our environment. Without the marks: nobody shall end it for the job's."""
    kept = {name: os.environ[name] for name in plan.keep_environment if name in os.environ}
    return dict(kept, **_labels(plan))


# What the runtime said, for a person.


_PREFIX = re.compile(r"^(docker: )?(Error(:| response from daemon:) )*", re.IGNORECASE)
# Podman's and Docker's words → ours. The first that fits.
_MEANINGS = (
    (r"no space left on device", "the disk of the container runtime is full: %s"),
    (
        r"could not select device driver|nvidia-container|unresolvable CDI devices|unknown runtime.*nvidia",
        "the container runtime has no NVIDIA runtime for --gpus: %s",
    ),
    (
        r"cannot connect to the docker daemon|failed to connect to the docker api",
        "the Docker daemon is down: %s",
    ),
    (
        r"permission denied while trying to connect|dial unix.*permission denied",
        "no permission to use Docker: %s",
    ),
    (
        r"no such image|image not known|unable to find image",
        "the image is not on this host, `clusterkit preflight` pulls it: %s",
    ),
    (r"is already in use by container|name .* is in use", "a container of this run is there already: %s"),
    (
        r"(mount source path|mounting|bind source|statfs|mkdir|lstat) .*permission denied",
        "the container runtime may not read a directory of the login user's (a home on NFS? then set "
        "remote_dir to a local disk): %s",
    ),
)


def why(said: str, runtime: List[str]) -> str:
    """One line that says why the container did not start, from what the runtime's client printed."""
    lines = [text.strip() for text in said.splitlines() if text.strip() and "run --help" not in text]
    last = _PREFIX.sub("", lines[-1])[:400] if lines else "%s said nothing" % runtime[-1]
    for pattern, words in _MEANINGS:
        if re.search(pattern, last, re.IGNORECASE):
            return words % last
    return "its container did not start: %s" % last


def _log(words: str) -> None:
    sys.stderr.write("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), words))
    sys.stderr.flush()
