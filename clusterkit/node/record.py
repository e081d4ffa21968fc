"""A node's state for whoever asks: from its supervisor, or from the file that it left behind."""

from typing import Any, Dict, Optional

from . import control
from .files import RunFiles, read_json
from .plan import Plan

State = Dict[str, Any]


def is_final(state: Optional[State]) -> bool:
    """The node has nothing left of the job and knows the run's outcome."""
    return bool(state and state["state"] == "ended" and (state.get("decision") or {}).get("phase") == "done")


def written(files: RunFiles) -> Optional[State]:
    """The state in state.json, for a node without a living supervisor; None if none was ever written.

    `"supervisor": "dead"` is added where the supervisor did not live to say how the run ended.
    """
    state = read_json(files.state)
    if not isinstance(state, dict):
        return None
    if not is_final(state) and "supervisor" not in state:
        state["supervisor"] = "dead"
    return state


def current(files: RunFiles, plan: Plan, timeout: float = 2.0) -> Optional[State]:
    """The state now: what the supervisor answers within `timeout` seconds, else what is written."""
    return control.state_of(plan, timeout) or written(files)
