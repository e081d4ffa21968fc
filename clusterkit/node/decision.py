"""Node 0's decisions: what all nodes do next, from their states and the time alone. No I/O in here."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from . import attempts, rootcause
from .plan import NO_RESTARTS, Restarts, Timeouts
from .silence import Silence, folded

Decision = Dict[str, Any]
Cause = Dict[str, Any]
State = Dict[str, Any]

# Between the decision to start and the start: enough for the message to reach every node.
START_LEAD = 0.5
# If all failed ranks complain about a lost peer, wait this long for the one that failed first to end.
SETTLE = 2.0
# A longer pause between two looks means that this process was stopped or the machine asleep.
_PAUSE = 2.0


class View(NamedTuple):
    """What node 0 knows about one node.

    `heard_at` is the monotonic clock, None if the node was never heard. `registered` says whether its
    launcher has come to Paddle's own meeting point, None if that is not known.
    """

    node_rank: int
    alias: str
    joined: bool
    heard_at: Optional[float]
    state: Optional[State]
    registered: Optional[bool] = None

    @property
    def phase(self) -> str:
        """The node's own word about itself, "" if it never said one."""
        return str(self.state["state"]) if self.state else ""

    @property
    def failure(self) -> Optional[Dict[str, Any]]:
        """The node's failure, if it reported one."""
        return self.state.get("failure") if self.state else None


def waiting() -> Decision:
    """The decision before any other: wait at the gate."""
    return {
        "attempt": 0,
        "phase": "gate",
        "start_at": None,
        "grace": None,
        "outcome": None,
        "cause": None,
        "master_port": None,
        "history": [],
        "hang": None,
    }


def cause(kind: str, detail: str, node_rank: Optional[int] = None, alias: Optional[str] = None) -> Cause:
    """A cause that is not a rank's."""
    return {
        "kind": kind,
        "node_rank": node_rank,
        "alias": alias,
        "rank": None,
        "exit_code": None,
        "signal": None,
        "at": None,
        "detail": detail,
    }


def outcome_of(kind: str) -> str:
    """The outcome of a run that was stopped for this kind of cause."""
    return {"user": "stopped", "stop": "stopped", "lost": "lost", "gpu": "lost"}.get(kind, "failed")


class Decider:
    """Node 0's state machine. `now` is the monotonic clock (for waits), `clock` node 0's wall clock.

    A job that fails may be started anew: when every node has ended its part, the next attempt begins at the
    gate, which opens after the back-off. `attempt` and `history` are where the run stands when it is staged.
    """

    def __init__(
        self,
        timeouts: Timeouts,
        now: float,
        restarts: Restarts = NO_RESTARTS,
        attempt: int = 0,
        history: Sequence[Dict[str, Any]] = (),
        master_port: Callable[[], Optional[int]] = lambda: None,
        on_hang: str = "report",
    ) -> None:
        self._timeouts = timeouts
        self._restarts = restarts
        self._attempt = attempt
        self._history = list(history)
        self._find_master_port = master_port
        self._master_port: Optional[int] = None
        self._not_before = now
        self._on_hang = on_hang
        self._silence = Silence(timeouts.hang)
        self._hang: Optional[Dict[str, Any]] = None
        self._is_stopped = False
        # All nodes have been at the gate before: one that is silent is lost, and not merely late.
        self._is_again = False
        self._phase = "gate"
        self._word_at = now
        self._go_at: Optional[float] = None
        self._start_at: Optional[float] = None
        self._started = now
        self._settle_until: Optional[float] = None
        self._trigger: Optional[Cause] = None
        self._grace: Optional[float] = None
        self._stopped_at = 0.0
        self._outcome: Optional[str] = None
        self._cause: Optional[Cause] = None
        self._looked_at = now
        self._awake_since = now

    @property
    def decision(self) -> Decision:
        """What every node is told."""
        return {
            "attempt": self._attempt,
            "phase": self._phase,
            "start_at": self._start_at,
            "grace": self._grace,
            "outcome": self._outcome,
            "cause": self._cause,
            "master_port": self._master_port,
            "history": list(self._history),
            "hang": self._hang,
        }

    def keep(self, now: float) -> None:
        """A controller is there: the gate may wait on."""
        self._word_at = now

    def go(self, now: float) -> None:
        """Every node is staged: start as soon as all have joined."""
        self._word_at = now
        if self._go_at is None:
            self._go_at = now

    def stop(self, clock: float, grace: Optional[float], why: Cause) -> None:
        """End the run; if it is ending already, end it no later than `grace` seconds from now."""
        if self._phase == "done":
            return
        self._is_stopped = True
        if self._phase != "stop":
            self._stop(clock, why, grace)
        elif grace is not None and (self._grace is None or grace < self._grace):
            self._grace = grace

    def step(self, now: float, clock: float, views: Sequence[View]) -> Decision:
        """Look at all nodes (node 0 among them) once; the decision that holds from now on."""
        self._notice_pause(now, clock)
        for view in views:
            wanted = view.state.get("stop_wanted") if view.state else None
            if wanted:
                self.stop(clock, wanted.get("grace"), wanted["cause"])
        views = [self._of_this_attempt(view) for view in views]
        phases: Dict[str, Callable[[float, float, Sequence[View]], None]] = {
            "gate": self._at_gate,
            "prepare": self._preparing,
            "start": self._running,
            "stop": self._stopping,
        }
        if self._phase in phases:
            phases[self._phase](now, clock, views)
        return self.decision

    def _of_this_attempt(self, view: View) -> View:
        """What a node says about an attempt that is over says nothing about this one."""
        if view.state is None or view.state.get("attempt", 0) == self._attempt:
            return view
        return view._replace(state=None)

    # Each phase, in order.

    def _at_gate(self, now: float, clock: float, views: Sequence[View]) -> None:
        if self._stop_for_failure(now, clock, views):
            return
        if self._is_again and self._stop_for_lost(now, clock, views):
            return
        if now < self._not_before:
            return
        missing = [view.alias for view in views if not view.joined or view.phase != "gate"]
        if self._go_at is not None and not missing:
            self._phase = "prepare"
            self._started = now
        elif self._go_at is None and now - self._word_at > self._timeouts.gate:
            words = "no word from a controller for %g s: nothing was started" % self._timeouts.gate
            self._stop(clock, cause("gate", words))
        elif self._go_at is not None and now - self._go_at > self._timeouts.gate:
            words = "not connected to node 0 after %g s: %s" % (self._timeouts.gate, ", ".join(missing))
            first = next(view for view in views if view.alias in missing)
            self._stop(clock, cause("gate", words, first.node_rank, first.alias))

    def _preparing(self, now: float, clock: float, views: Sequence[View]) -> None:
        if self._stop_for_failure(now, clock, views) or self._stop_for_lost(now, clock, views):
            return
        late = [view for view in views if view.phase != "prepared"]
        if not late:
            self._phase = "start"
            self._start_at = clock + START_LEAD
            self._started = now + START_LEAD
        elif now - self._started > self._timeouts.gate:
            words = "not ready to start after %g s: %s" % (self._timeouts.gate, _names(late))
            self._stop(clock, cause("gate", words, late[0].node_rank, late[0].alias))

    def _running(self, now: float, clock: float, views: Sequence[View]) -> None:
        if self._stop_for_failure(now, clock, views) or self._stop_for_lost(now, clock, views):
            return
        if all(view.phase == "ended" for view in views):
            self._phase, self._outcome, self._hang = "done", "succeeded", None
            return
        if _only_servers_run(views):
            self._finish(clock)
            return
        self._look_for_hang(now, clock, views)
        missing = _missing(views)
        if missing and now - self._started > self._timeouts.join:
            joined = _names([view for view in views if view not in missing]) or "none"
            absent = ", ".join(_absent(view) for view in missing)
            words = "after %g s missing: %s; joined: %s" % (self._timeouts.join, absent, joined)
            self._stop(clock, cause("join", words, missing[0].node_rank, missing[0].alias))

    def _look_for_hang(self, now: float, clock: float, views: Sequence[View]) -> None:
        """Name a job whose ranks are all silent, and end it if that is wanted."""
        ranks = self._silence.look(now, self._awake_since, [view.state for view in views])
        if ranks is None:
            self._hang = None
            return
        if self._hang is None:
            since = clock - self._timeouts.hang
            self._hang = {"ranks": folded(ranks), "since": since, "silent_s": self._timeouts.hang}
            if self._on_hang in ("stop", "restart"):
                words = "rank%s %s wrote nothing for %g s"
                plural = "s" * (len(ranks) != 1)
                self._stop(clock, cause("hang", words % (plural, folded(ranks), self._timeouts.hang)))

    def _stopping(self, now: float, clock: float, views: Sequence[View]) -> None:
        ended = [view for view in views if view.phase == "ended"]
        lost = [view for view in views if view.phase != "ended" and self._is_silent(view, now)]
        if len(ended) + len(lost) < len(views):
            return
        if self._trigger is None:
            self._phase = "done"
            return
        found = rootcause.failures([view.state for view in views if view.state])
        gone = self._gone([view for view in lost if view.heard_at is not None], views, now, clock)
        trigger = self._trigger
        if trigger["kind"] == "lost" and [node.node_rank for node in gone] == [0]:
            trigger = rootcause.lost_cause(gone[0])
        self._cause = rootcause.root_cause(trigger, found, gone, self._stopped_at)
        self._outcome = outcome_of(self._cause["kind"])
        if lost or not self._may_restart(ended):
            self._phase = "done"
        else:
            self._restart(now)

    # Another attempt.

    def _may_restart(self, views: Sequence[View]) -> bool:
        if self._is_stopped or self._attempt >= self._restarts.most or not attempts.is_worth(self._cause):
            return False
        if self._cause is not None and self._cause["kind"] == "hang" and self._on_hang != "restart":
            return False
        if self._start_at is None and not self._is_again:
            return False  # It never ran: whatever was in its way is still there.
        # What not even SIGKILL ended still holds its GPU.
        return not any(view.state and view.state.get("left") for view in views)

    def _restart(self, now: float) -> None:
        """Every node has ended its part: the next attempt waits at the gate for its time."""
        wait = attempts.wait_before(self._restarts, self._attempt + 1)
        self._history.append(attempts.ended(self.decision, wait))
        self._attempt += 1
        self._is_again = True
        self._master_port = self._find_master_port()
        self._not_before = now + wait
        self._go_at = self._not_before
        self._phase = "gate"
        self._silence, self._hang = Silence(self._timeouts.hang), None
        self._start_at = self._settle_until = self._grace = None
        self._trigger = self._outcome = self._cause = None

    # What ends a run.

    def _stop_for_failure(self, now: float, clock: float, views: Sequence[View]) -> bool:
        if not any(view.failure for view in views):
            return False
        found = rootcause.failures([view.state for view in views if view.state])
        if not found:
            return False
        if all(failed.lost_a_peer for failed in found):
            if self._settle_until is None:
                self._settle_until = now + SETTLE
            if now < self._settle_until:
                return False
        self._stop(clock, rootcause.root_cause(found[0].cause, found, [], clock))
        return True

    def _stop_for_lost(self, now: float, clock: float, views: Sequence[View]) -> bool:
        lost = [view for view in views if view.phase != "ended" and self._is_silent(view, now)]
        if not lost:
            return False
        gone = self._gone(lost, views, now, clock)
        self._stop(clock, rootcause.lost_cause(min(gone, key=lambda node: node.heard_at)))
        return True

    def _stop(self, clock: float, why: Cause, grace: Optional[float] = None) -> None:
        self._phase = "stop"
        self._trigger = dict(why)
        if self._trigger.get("at") is None:
            self._trigger["at"] = clock
        self._cause = self._trigger
        self._outcome = outcome_of(why["kind"])
        self._grace = self._timeouts.grace if grace is None else grace
        self._stopped_at = clock

    def _finish(self, clock: float) -> None:
        """Every trainer has ended well: parameter servers do not end by themselves, so we end them."""
        self._phase, self._outcome = "stop", "succeeded"
        self._cause = self._trigger = self._hang = None
        self._grace = self._timeouts.grace
        self._stopped_at = clock

    # Silence.

    def _is_silent(self, view: View, now: float) -> bool:
        if view.node_rank == 0:
            return False
        if view.heard_at is None:
            return True
        return now - max(view.heard_at, self._awake_since) > self._timeouts.node

    def _gone(
        self, lost: Sequence[View], views: Sequence[View], now: float, clock: float
    ) -> List[rootcause.Lost]:
        """The lost nodes. Where node 0 hears none of several others, it is node 0 that is cut off."""
        gone = [self._lost(view, now, clock) for view in lost]
        if len(gone) > 1 and len(gone) == len(views) - 1:
            return [rootcause.Lost(0, views[0].alias, max(node.heard_at for node in gone))]
        return gone

    def _lost(self, view: View, now: float, clock: float) -> rootcause.Lost:
        heard_at = now if view.heard_at is None else view.heard_at
        return rootcause.Lost(view.node_rank, view.alias, clock - (now - heard_at))

    def _notice_pause(self, now: float, clock: float) -> None:
        """A pause of this process itself says nothing about the others' silence."""
        pause, self._looked_at = now - self._looked_at, now
        if pause < _PAUSE:
            return
        self._awake_since = now
        self._word_at = max(self._word_at, now - self._timeouts.gate / 2)
        if pause > self._timeouts.node and self._phase in ("prepare", "start"):
            words = "node 0's supervisor did not run for %.0f s, so the other nodes have stopped" % pause
            self._stop(clock, cause("lost", words, 0, None))


def _names(views: Sequence[View]) -> str:
    return ", ".join(view.alias for view in views)


def _all_started(view: View) -> bool:
    if not view.state:
        return False
    processes = view.state["ranks"] + view.state.get("servers", [])
    return all(process["started_at"] is not None for process in processes)


def _only_servers_run(views: Sequence[View]) -> bool:
    """True once every trainer of a job with parameter servers has ended with 0."""
    states = [view.state for view in views if view.state]
    if len(states) < len(views) or not any(state.get("servers") for state in states):
        return False
    ranks = [rank for state in states for rank in state["ranks"]]
    return all(rank["ended_at"] is not None and rank["exit_code"] == 0 for rank in ranks)


def _missing(views: Sequence[View]) -> List[View]:
    """The nodes that keep the ranks from running.

    No launcher starts a rank before all have met: while some have not come, only those are missing.
    """
    waiting = [view for view in views if not _all_started(view)]
    return [view for view in waiting if view.registered is False] or waiting


def _absent(view: View) -> str:
    """A node whose ranks never ran, and why as far as it can be seen."""
    if view.registered is False:
        problem = view.state.get("master_problem") if view.state else None
        return "%s (its launcher %s)" % (
            view.alias,
            "cannot reach the master %s" % problem if problem else "has not come to the master",
        )
    ranks = view.state["ranks"] if view.state else []
    absent = [str(rank["rank"]) for rank in ranks if rank["started_at"] is None]
    return "%s (rank%s %s)" % (view.alias, "s" * (len(absent) != 1), ", ".join(absent))
