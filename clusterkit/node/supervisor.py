"""The supervisor of one node: one select loop around the node's life, its local socket and the channel."""

import os
import selectors
import signal
import socket
import sys
import time
import traceback
from typing import Any, Dict, List, Optional, Tuple, Union

from . import decision as deciding
from . import plan as planning
from . import processes
from .control import ControlError, ControlServer
from .coordinator import Coordinator, peers_of, significant
from .files import RunFiles, write_json
from .hold import Hold
from .life import NO_FAILURE, Life
from .listeners import who_listens
from .master import MasterQuery, MasterReach
from .peer import Peer
from .plan import Plan

_TICK = 0.1
# With many nodes there is always a message: what comes within this time is looked at together.
_TOGETHER = 0.01
# A state that has not changed is still written and pushed this often.
_REFRESH = 5.0
# Node 0's state holds all nodes' states: other nodes' changes are gathered this long, for each node, before
# the whole is pushed.
_GATHER = 0.004
# How long the last state may take to reach those who watch.
_FAREWELL = 2.0


def main(run_dir: str, umask: int) -> int:
    """Supervise the run of `run_dir` to its end; 0 unless we ourselves fail."""
    os.chdir("/")
    try:
        files, plan = planning.open_run(run_dir)
        supervisor = Supervisor(plan, files, umask)
    except (planning.PlanError, ControlError, OSError, ValueError) as error:
        _log("cannot supervise: %s" % error)
        return 1
    supervisor.run()
    return 0


def _log(words: str) -> None:
    sys.stderr.write("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), words))
    sys.stderr.flush()


class Supervisor:
    """Takes commands and decisions, and lets the node live by them."""

    def __init__(self, plan: Plan, files: RunFiles, umask: int) -> None:
        self._plan = plan
        self._files = files
        self._selector = selectors.DefaultSelector()
        self._began = time.monotonic()
        self._decision = deciding.waiting()
        self._alone: Optional[Dict[str, Any]] = None
        self._stop_wanted: Optional[Dict[str, Any]] = None
        self._turned_at = self._began
        self._told = ("", "")
        self._published_at = 0.0
        self._over_since: Optional[float] = None
        self._signals = _catch_signals(self._selector, self._signalled)
        processes.become_subreaper()
        self._life = Life(plan, files, umask)
        self._decider = deciding.Decider(plan.timeouts, self._began)
        self._master = MasterQuery(plan, self._selector)
        self._reach = MasterReach(plan, self._selector)
        self._control = ControlServer(plan, self._selector, self.state, self._command)
        self._link = self._join_channel()
        self._hold = self._take_hold()

    def _take_hold(self) -> Hold:
        """GPUs and ports are ours; where they are another run's, this node has failed and says so."""
        hold = Hold(self._plan)
        try:
            problem = hold.take()
        except OSError as error:
            # A full disk is no reason not to train: without it nobody is told, that is all.
            _log("cannot say what is held: %s: %s" % (error.filename, error.strerror))
            return hold
        if problem:
            self._life.fail("held", problem)
        return hold

    def _join_channel(self) -> Union[Coordinator, Peer, None]:
        key = self._files.channel_key()
        if self._plan.node_rank > 0:
            return Peer(self._plan, key, self._selector, self.state)
        try:
            return Coordinator(self._plan, key, self._selector)
        except OSError as error:
            where = "%s:%d" % (self._plan.node_ip, self._plan.channel_port)
            holder = who_listens(self._plan.node_ip, self._plan.channel_port)
            self._life.fail("channel", "cannot listen on %s: %s%s" % (where, error.strerror, holder))
            return None

    def run(self) -> None:
        """Live until the run is over, whatever happens on the way."""
        _log("supervisor %d of node %d of run %s" % (os.getpid(), self._plan.node_rank, self._plan.run_id))
        try:
            while not self._is_over():
                self._turn()
        except Exception:
            _log(traceback.format_exc())
            self._end_in_panic("the supervisor failed: %s" % traceback.format_exc().splitlines()[-1])
        self._publish(time.monotonic(), final=True)
        self._hold.release()
        self._control.close(_FAREWELL)
        if self._link is not None:
            self._link.close()
        _log("ended: %s" % self._decision)

    def _turn(self) -> None:
        self._listen()
        now = self._turned_at = time.monotonic()
        self._life.observe(now)
        self._decide(now)
        self._obey(now)
        self._publish(now)

    def _listen(self) -> None:
        """Serve every socket until the next turn is due; what has come by then is heard, then judged."""
        due = self._turned_at + _TICK
        while True:
            left = due - time.monotonic()
            # A process that was paused in here finds its time over, and the words of others waiting.
            ready = self._selector.select(max(0.0, left))
            for key, events in ready:
                key.data(events)
            if ready:
                due = min(due, self._turned_at + _TOGETHER)
            if left <= 0:
                return

    # Commands and signals.

    def _command(self, request: Dict[str, Any]) -> None:
        now = time.monotonic()
        self._decider.keep(now)
        if request["command"] == "go":
            self._decider.go(now)
        elif request["command"] == "stop":
            given = request.get("cause") or {}
            self._stop(given, request.get("grace"))

    def _signalled(self, signum: int) -> None:
        if signum in (signal.SIGTERM, signal.SIGINT):
            words = "the supervisor on %s got signal %d" % (self._plan.alias, signum)
            self._stop({"kind": "stop", "detail": words}, None)

    def _stop(self, given: Dict[str, Any], grace: Optional[float]) -> None:
        why = deciding.cause(str(given.get("kind", "stop")), str(given.get("detail", "")))
        why["signal"] = given.get("signal")
        grace = None if grace is None else max(0.0, float(grace))
        if isinstance(self._link, Peer):
            self._stop_wanted = {"grace": grace, "cause": why}
        else:
            self._decider.stop(time.time(), grace, why)

    # Decisions.

    def _decide(self, now: float) -> None:
        if isinstance(self._link, Peer):
            self._link.step(now)
            self._decision = self._as_peer(self._link, now)
            if self._life.state == "starting":
                self._reach.step(now)
            else:
                self._reach.close()
        else:
            self._decision = self._decider.step(now, time.time(), self._views(now))
            if self._link is not None:
                self._link.drop_silent(now)
                self._link.decide(self._decision)
            if self._decision["phase"] == "start":
                self._master.step(now)

    def _views(self, now: float) -> List[deciding.View]:
        """Every node as node 0 knows it now, itself first."""
        known = self._master.registered
        views = [deciding.View(0, self._plan.alias, True, now, self._own_state())]
        for rank, member in enumerate(self._plan.nodes[1:], 1):
            if isinstance(self._link, Coordinator):
                views.append(self._link.view(rank, None if known is None else rank in known))
            else:
                views.append(deciding.View(rank, member.alias, False, None, None))
        return views

    def _as_peer(self, link: Peer, now: float) -> Dict[str, Any]:
        """Node 0's decision, or our own once node 0 is gone."""
        if self._alone is not None:
            return self._act_alone(self._alone)
        told = link.decision or deciding.waiting()
        silence = now - (link.heard_at or self._began)
        if told["phase"] == "gate" and silence > self._plan.timeouts.gate:
            words = "no word from node 0 for %g s: nothing was started" % self._plan.timeouts.gate
            if link.problem:
                self._life.fail("channel", "node 0 could not be reached: %s" % link.problem)
            return self._go_alone(deciding.cause("gate", words), None)
        if told["phase"] not in ("gate", "done") and silence > self._plan.timeouts.node:
            if told["phase"] == "stop":
                return self._go_alone(told["cause"], told["grace"])
            words = "node 0 was not heard for %g s" % self._plan.timeouts.node
            first = self._plan.nodes[0].alias
            self._life.fail("lost", words, node_rank=0, alias=first)
            return self._go_alone(deciding.cause("lost", words, 0, first), None)
        cut_off = not link.is_connected or silence > 3.0
        if self._stop_wanted and cut_off and told["phase"] != "done":
            return self._go_alone(self._stop_wanted["cause"], self._stop_wanted["grace"])
        return told

    def _go_alone(self, cause: Dict[str, Any], grace: Optional[float]) -> Dict[str, Any]:
        why = dict(cause)
        if why.get("at") is None:
            why["at"] = time.time() - self._offset()
        self._alone = {
            "phase": "stop",
            "start_at": None,
            "grace": self._plan.timeouts.grace if grace is None else grace,
            "outcome": deciding.outcome_of(why["kind"]),
            "cause": why,
        }
        _log("on our own: %s" % why["detail"])
        return self._alone

    def _act_alone(self, alone: Dict[str, Any]) -> Dict[str, Any]:
        wanted = self._stop_wanted["grace"] if self._stop_wanted else None
        if wanted is not None:
            alone["grace"] = min(alone["grace"], wanted)
        if self._life.state == "ended":
            alone["phase"] = "done"
        return alone

    def _obey(self, now: float) -> None:
        phase = self._decision["phase"]
        if phase == "prepare" and self._life.state == "gate":
            self._life.prepare()
        elif phase == "start" and self._life.state == "prepared":
            self._life.start(self._decision["start_at"] + self._offset())
        elif phase in ("stop", "done") and self._life.state != "ended":
            grace = self._decision["grace"]
            self._life.stop(self._plan.timeouts.grace if grace is None else grace, now)

    def _is_over(self) -> bool:
        if self._life.state != "ended" or self._decision["phase"] != "done":
            return False
        now = time.monotonic()
        if self._over_since is None:
            self._over_since = now
        if now - self._over_since > self._plan.timeouts.node:
            return True
        if isinstance(self._link, Coordinator):
            return self._link.everyone_knows(now)
        if isinstance(self._link, Peer) and self._alone is None:
            # One more answer proves that node 0 has heard that we know.
            return not self._link.is_connected or (self._link.heard_at or 0.0) > self._over_since + 0.01
        return True

    def _end_in_panic(self, words: str) -> None:
        """We cannot go on; the job must not stay behind, and the others shall know why."""
        self._life.fail("supervisor", words)
        run_id, node_rank = self._plan.run_id, self._plan.node_rank
        end = time.monotonic() + processes.PROOF_LIMIT
        ending = processes.Ending(
            lambda: processes.of_run(run_id, node_rank, os.getpid()), 0.0, time.monotonic()
        )
        while not ending.step(time.monotonic()) and time.monotonic() < end:
            time.sleep(0.05)
        self._life.state = "ended"
        self._life.ended_at = time.time()
        why = deciding.cause("supervisor", words, self._plan.node_rank, self._plan.alias)
        self._decision = dict(deciding.waiting(), phase="done", outcome="failed", cause=why)

    # The state, and who is told.

    def _offset(self) -> float:
        return self._link.clock.offset if isinstance(self._link, Peer) else 0.0

    def _own_state(self) -> Dict[str, Any]:
        life = self._life
        return {
            "schema": 1,
            "run_id": self._plan.run_id,
            "alias": self._plan.alias,
            "node_rank": self._plan.node_rank,
            "pid": os.getpid(),
            "state": life.state,
            "started_at": life.launcher.started_at,
            "ended_at": life.ended_at,
            "launcher_exit": life.launcher.exit,
            "ranks": life.ranks.states(),
            "failure": life.failure or self._not_connected(),
            "master_problem": self._reach.problem,
            "stop_wanted": self._stop_wanted,
            "left": life.left,
            "decision": self._decision,
        }

    def _not_connected(self) -> Optional[Dict[str, Any]]:
        """While we wait at the gate: why node 0 cannot be reached, as a failure that may still pass."""
        link = self._link
        if self._life.state != "gate" or not isinstance(link, Peer) or link.problem is None:
            return None
        return dict(NO_FAILURE, kind="channel", at=link.problem_since, detail=link.problem)

    def state(self) -> Dict[str, Any]:
        """The node's state as everybody is told it (docs/architecture.md)."""
        now = time.monotonic()
        state = self._own_state()
        if isinstance(self._link, Peer):
            heard_at = self._link.heard_at
            state["clock_offset_s"] = self._link.clock.offset
            state["clock_error_s"] = self._link.clock.error
            state["heard_s"] = None if heard_at is None else round(now - heard_at, 3)
        else:
            state.update(clock_offset_s=0.0, clock_error_s=0.0, heard_s=0.0)
            state["peers"] = peers_of(self._views(now), now)
        return state

    def _significant(self) -> Tuple[str, str]:
        """What makes a state a new one: our own part, and that of the others (node 0 only)."""
        version = self._link.version if isinstance(self._link, Coordinator) else 0
        return significant(self._own_state()), "%d %s" % (version, self._master.registered)

    def _publish(self, now: float, final: bool = False) -> None:
        own, others = self._significant()
        since = now - self._published_at
        is_due = since > _REFRESH or (others != self._told[1] and since > _GATHER * len(self._plan.nodes))
        if not final and own == self._told[0] and not is_due:
            self._control.catch_up()
            return
        self._told = (own, others)
        self._published_at = now
        if isinstance(self._link, Peer):
            self._link.say(now)
        self._control.push()
        try:
            write_json(self._files.state, self.state())
        except OSError as error:
            _log("cannot write %s: %s" % (self._files.state, error.strerror))


def _catch_signals(selector: selectors.BaseSelector, handle: Any) -> socket.socket:
    """Signals arrive as bytes on a socket of the loop; SIGHUP and SIGPIPE mean nothing to us."""
    ours, kernels = socket.socketpair()
    ours.setblocking(False)
    kernels.setblocking(False)
    signal.set_wakeup_fd(kernels.fileno())
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(signum, lambda _signum, _frame: None)
    for signum in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)

    def arrived(_events: int) -> None:
        for signum in ours.recv(4096):
            handle(signum)

    selector.register(ours, selectors.EVENT_READ, arrived)
    return kernels
