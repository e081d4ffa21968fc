"""`stop`: nothing of this run is left on this host, with or without the help of its supervisor."""

import time
from typing import Any, Dict, List, Tuple

from . import container, control, processes, record
from .files import RunFiles, remove, write_json
from .plan import Plan

# Beyond the grace: what the supervisor needs to kill, to prove and to say goodbye.
_BEYOND_GRACE = 15.0


def stop(files: RunFiles, plan: Plan, grace: float) -> Dict[str, Any]:
    """End the run on this host; says what it was, what had to be killed and what is left."""
    state = record.current(files, plan)
    was = _name(state)
    asked = _ask_supervisor(files, plan, grace)
    killed, left = _end_the_rest(plan, 1.0 if asked else grace)
    container.remove(plan)
    remove(files.secrets)
    _close_record(files, was)
    return {"stopped": not left, "was": was, "killed": killed, "left": left}


def _name(state: Any) -> str:
    if state is None:
        return "never started"
    if state.get("supervisor") == "dead":
        return "dead"
    return "ended" if record.is_final(state) else "running"


def _ask_supervisor(files: RunFiles, plan: Plan, grace: float) -> bool:
    """True if the supervisor took the command and has ended, or used up its time."""
    command = {"command": "stop", "grace": grace, "cause": {"kind": "stop"}}
    try:
        control.ask(plan, command, 2.0)
    except control.ControlError:
        return False
    end = time.monotonic() + grace + _BEYOND_GRACE
    while time.monotonic() < end:
        time.sleep(0.1)
        if control.state_of(plan) is None:
            break
    return True


def _end_the_rest(plan: Plan, grace: float) -> Tuple[List[int], List[int]]:
    """End whatever still carries the mark, the supervisor too, and its descendants."""
    ending = processes.Ending(lambda: processes.of_run(plan.run_id, plan.node_rank), grace, time.monotonic())
    while not ending.step(time.monotonic()):
        time.sleep(0.05)
    return sorted(ending.killed), ending.left


def _close_record(files: RunFiles, was: str) -> None:
    """A run whose supervisor died is over now; say so where it is read."""
    state = record.written(files)
    if state is None or record.is_final(state):
        return
    cause = {"kind": "stop", "detail": "stopped while it was %s" % was, "at": time.time()}
    state["state"] = "ended"
    state["ended_at"] = state.get("ended_at") or time.time()
    state["decision"] = dict(state.get("decision") or {}, phase="done", outcome="stopped", cause=cause)
    try:
        write_json(files.state, state)
    except OSError:
        pass
