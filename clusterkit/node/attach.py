"""`attach`: states and log bytes to the controller, commands from it, for as long as it listens."""

import json
import os
import select
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from . import control, ranks, record
from .attempt_log import AttemptLog
from .files import RunFiles
from .plan import Plan

# The controller's first line has to come within this time.
REQUEST_LIMIT = 30.0
# A controller that takes nothing for so long is not there any more.
TAKE_LIMIT = 3600.0
# A supervisor that says nothing for so long is asked for by a new connection.
_QUIET_LIMIT = 15.0
_POLL = 0.1
_STATE_EVERY = 5.0


class Gone(Exception):
    """The controller has closed its side, or takes nothing any more."""


class Controller:
    """The two pipes to the controller. Its commands are heard also while it is slow to take what we send.

    Once `hears` is set, every line goes there, and a closed stdin ends everything (Gone). Before that a
    closed stdin only means that there is nothing more to read: `echo '{}' | agent.pyz attach RUN_DIR`.
    """

    def __init__(self, stdin: int, stdout: int) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._buffer = b""
        self._is_closed = False
        self._lines: List[bytes] = []
        self.hears: Optional[Callable[[bytes], None]] = None
        os.set_blocking(stdout, False)

    def first_line(self) -> bytes:
        """The request. Raises ValueError if none comes."""
        end = time.monotonic() + REQUEST_LIMIT
        while not self._lines and not self._is_closed and time.monotonic() < end:
            self.wait(1.0)
        if not self._lines:
            raise ValueError("no request came within %g s" % REQUEST_LIMIT)
        return self._lines.pop(0)

    def wait(self, seconds: float, also: Optional[socket.socket] = None) -> None:
        """Up to `seconds`, or until the controller or `also` says something. Raises Gone."""
        if self._stdin in select.select(self._sources() + ([also] if also else []), [], [], seconds)[0]:
            self._receive()
        self._dispatch()

    def _sources(self) -> List[Any]:
        return [] if self._is_closed else [self._stdin]

    def _receive(self) -> None:
        data = os.read(self._stdin, 65536)
        self._is_closed = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._lines.extend(lines)

    def _dispatch(self) -> None:
        if self.hears is not None:
            while self._lines:
                self.hears(self._lines.pop(0))
            if self._is_closed:
                raise Gone()

    def frame(self, frame: Dict[str, Any], data: bytes = b"") -> None:
        """One frame has been taken by the system. Raises Gone."""
        view = memoryview(json.dumps(frame, separators=(",", ":")).encode("ascii") + b"\n" + data)
        taken_at = time.monotonic()
        while view:
            readable, writable, _ = select.select(self._sources(), [self._stdout], [], 1.0)
            if readable:
                self._receive()
                self._dispatch()
            if writable:
                try:
                    view = view[os.write(self._stdout, view[:65536]) :]
                    taken_at = time.monotonic()
                except BlockingIOError:
                    pass
                except OSError:
                    raise Gone()
            if time.monotonic() - taken_at > TAKE_LIMIT:
                raise Gone()


class Supervised:
    """The supervisor's pushed states; `sock` is None once there is no supervisor."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._buffer = b""
        self._heard_at = time.monotonic()
        self.state: Optional[Dict[str, Any]] = None
        self.sock = self._connect()

    def _connect(self) -> Optional[socket.socket]:
        try:
            sock = control.connect(self._plan, 2.0)
        except control.ControlError:
            return None
        sock.settimeout(2.0)
        try:
            sock.sendall(b'{"ask": "watch"}\n')
        except OSError:
            sock.close()
            return None
        return sock

    def send(self, line: bytes) -> None:
        """Pass a command on; what the supervisor makes of it shows in its next state."""
        if self.sock is not None:
            try:
                self.sock.sendall(line + b"\n")
            except OSError:
                self._close()

    def look(self) -> bool:
        """Read what the supervisor has pushed; True if there is a newer state."""
        newer = False
        while self.sock is not None and select.select([self.sock], [], [], 0)[0]:
            try:
                data = self.sock.recv(1 << 20)
            except OSError:
                data = b""
            if not data:
                self._close()
                break
            self._heard_at = time.monotonic()
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            if lines:
                self.state = json.loads(lines[-1].decode("utf-8"))["state"]
                newer = True
        if self.sock is not None and time.monotonic() - self._heard_at > _QUIET_LIMIT:
            self._close()  # Stopped, or stuck in uninterruptible sleep.
        return newer

    def _close(self) -> None:
        if self.sock is not None:
            self.sock.close()
        self.sock = None


class Attachment:
    """One `attach`, from the controller's request to the last byte."""

    def __init__(self, files: RunFiles, plan: Plan, controller: Controller) -> None:
        self._files = files
        self._plan = plan
        self._controller = controller
        self._logs: Dict[str, AttemptLog] = {}
        self._told_at = 0.0
        # The attempt that the controller knows of: logs go on to it from the one before it.
        self._newest = 0

    def serve(self) -> None:
        """Everything that the controller asked for has been sent. Raises Gone, ValueError (the request)."""
        request = json.loads(self._controller.first_line().decode("utf-8"))
        if not isinstance(request, dict):
            raise ValueError("it is not a JSON object")
        follow, attempt = request.get("follow") or {}, self._plan.attempt
        if any("attempt" not in wanted for wanted in follow.values()):
            attempt = (record.current(self._files, self._plan) or {}).get("attempt", attempt)
        for name, wanted in follow.items():
            self._follow(name, wanted, attempt)
        if request.get("wait", False):
            self._stream()
        else:
            self._tell(record.current(self._files, self._plan))
            self._newest = 0  # What was asked for and no more.
        while self._send_logs():
            pass
        self._controller.frame({"frame": "end"})

    def _follow(self, name: str, wanted: Dict[str, Any], attempt: int) -> None:
        def add(path: Callable[[RunFiles, Plan], str], local: Optional[int] = None) -> None:
            self._logs[name] = AttemptLog(self._files, self._plan, path, wanted, attempt, local)

        if name == "launcher":
            add(lambda _files, plan: plan.launcher_log)
        elif name.startswith("server-") and int(name[7:]) in self._plan.servers:
            place = len(self._plan.ranks) + self._plan.servers.index(int(name[7:]))
            add(lambda files, plan: ranks.find_log(plan, files, place), place)
        elif name.isdigit() and int(name) in self._plan.ranks:
            local = self._plan.ranks.index(int(name))
            add(lambda files, plan: ranks.find_log(plan, files, local), local)
        else:
            words = "there is no log %r on %s: it has the ranks %s" % (
                name,
                self._plan.alias,
                self._plan.ranks,
            )
            self._controller.frame({"frame": "error", "message": words})

    def _stream(self) -> None:
        """States and logs until the supervisor has ended."""
        supervisor = Supervised(self._plan)
        self._controller.hears = supervisor.send
        while supervisor.sock is not None:
            newer = supervisor.look()
            # A supervisor that lives but has not spoken yet is no reason to say that there is none.
            if newer or (supervisor.state and time.monotonic() - self._told_at > _STATE_EVERY):
                self._tell(supervisor.state)
            more = self._send_logs()
            self._controller.wait(0 if more else _POLL, supervisor.sock)
        final = supervisor.state if record.is_final(supervisor.state) else record.written(self._files)
        self._tell(final)

    def _tell(self, state: Optional[Dict[str, Any]]) -> None:
        if state is None and self._told_at == 0.0 and not os.path.exists(self._files.state):
            words = "%s has never been started on %s" % (self._plan.run_id, self._plan.alias)
            self._controller.frame({"frame": "error", "message": words})
        if state is not None:
            self._told_at = time.monotonic()
            self._newest = state.get("attempt", 0)
            self._controller.frame({"frame": "state", "state": state})

    def _send_logs(self) -> bool:
        """One piece of every log that has something new; True if there was any."""
        any_sent = False
        for name, log in self._logs.items():
            piece = log.read(self._newest)
            if piece is not None:
                any_sent = True
                frame = {"frame": "log", "file": name, "offset": piece.offset, "size": len(piece.data)}
                frame["attempt"] = log.attempt
                if piece.times:
                    frame["times"] = piece.times
                if piece.truncated:
                    frame["truncated"] = True
                self._controller.frame(frame, piece.data)
        return any_sent


def main(files: RunFiles, plan: Plan) -> int:
    """Serve the controller at stdin and stdout; 0 also when it goes away."""
    controller = Controller(sys.stdin.fileno(), sys.stdout.fileno())
    try:
        try:
            Attachment(files, plan, controller).serve()
        except ValueError as error:
            controller.frame({"frame": "error", "message": "the request cannot be understood: %s" % error})
            return 1
    except Gone:
        pass
    return 0


def refuse(message: str) -> int:
    """Answer a controller that cannot be served: one error frame, then the end."""
    try:
        controller = Controller(sys.stdin.fileno(), sys.stdout.fileno())
        controller.frame({"frame": "error", "message": message})
        controller.frame({"frame": "end"})
    except Gone:
        pass
    return 1
