"""A run's attempts: the whole job started anew, each time with logs and rank records of its own."""

import os
from typing import Any, Dict, Optional, Tuple

from .files import RunFiles, read_json, write_json
from .master import free_port
from .plan import Plan, Restarts

# What a script ends with when it was called in a wrong way, cannot be run, or is not there (argparse, sh(1)).
USAGE_ERRORS = (2, 126, 127)


def of(files: RunFiles, plan: Plan, number: int, master_port: Optional[int] = None) -> Tuple[RunFiles, Plan]:
    """The files and the plan of one attempt; the first one's lie beside the run's own."""
    its_files = files.of_attempt(number)
    more: Dict[str, Any] = {"attempt": number, "log_dir": its_files.logs or plan.log_dir}
    if master_port is not None:
        more["master_port"] = master_port
    return its_files, plan._replace(**more)


def current(files: RunFiles, plan: Plan) -> Tuple[RunFiles, Plan]:
    """The attempt that its supervisor began last on this host, for a rank of it."""
    said = read_json(files.attempt) or {}
    return of(files, plan, int(said.get("attempt", plan.attempt)))


def begin(files: RunFiles, plan: Plan, base: Plan) -> None:
    """The files of this attempt are there, its node script among them. Raises OSError."""
    if plan.attempt == 0:
        return
    write_json(files.attempt, {"attempt": plan.attempt})
    os.makedirs(files.own, mode=0o700, exist_ok=True)
    with open(files.first_script, encoding="utf-8") as file:
        text = node_script(file.read(), base, plan)
    with open(
        os.open(files.node_script, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
    ) as out:
        out.write(text)


def node_script(text: str, base: Plan, plan: Plan) -> str:
    """The first attempt's node.sh for this attempt: its own logs, number and meeting point.

    `text` may come from a template of the user's. The three are unmistakable in it: a path with the run's
    id in it, our own variable, and the address with its port.
    """
    changes = (
        (_tail(base.log_dir), _tail(base.log_dir, plan.attempt)),
        ("CLUSTERKIT_ATTEMPT=0", "CLUSTERKIT_ATTEMPT=%d" % plan.attempt),
        (_master(base), _master(plan)),
    )
    for old, new in changes:
        text = text.replace(old, new)
    return text


def master_port(files: RunFiles, plan: Plan) -> int:
    """The port at which the launchers of another attempt meet: another one where the planned one is taken.

    It stays where node.sh does not name it as `IP:PORT`: launchers before 2.3, parameter servers and some
    templates are told other ports, on every node, which nothing of this run holds any more either.
    """
    try:
        with open(files.first_script, encoding="utf-8") as file:
            may_change = _master(plan) in file.read()
    except (OSError, UnicodeDecodeError):
        may_change = False
    return free_port(plan) if may_change else plan.master_port


def _master(plan: Plan) -> str:
    return "%s:%d" % (plan.nodes[0].node_ip, plan.master_port)


def _tail(log_dir: str, attempt: int = 0) -> str:
    """The end of a log directory from the run's id on, which no shell needs to quote: `RUN_ID/logs`."""
    parent, name = os.path.split(log_dir)
    between = ["attempt-%d" % attempt] if attempt else []
    return os.path.join(os.path.basename(parent), *(between + [name]))


def is_worth(cause: Optional[Dict[str, Any]]) -> bool:
    """True if the job may succeed when it is started again: a rank, a server or a launcher failed as it ran.

    A person's stop, a script that is not there or was called in a wrong way, and a world that cannot be
    formed would only repeat themselves. A node that was lost has stopped by itself, for good.
    """
    if cause is None or cause["kind"] not in ("rank", "server", "launcher", "hang"):
        return False
    return not (cause["kind"] in ("rank", "server") and cause["exit_code"] in USAGE_ERRORS)


def wait_before(restarts: Restarts, attempt: int) -> float:
    """Seconds of back-off before this attempt (1, 2, …): doubled each time, up to a limit."""
    return float(min(restarts.longest_wait, restarts.wait * 2 ** min(attempt - 1, 30)))


def ended(decision: Dict[str, Any], wait: float) -> Dict[str, Any]:
    """An attempt in the run's history: how it ended, in a line, and the back-off after it."""
    cause = dict(decision["cause"] or {})
    cause["detail"] = str(cause.get("detail") or "").partition("\n")[0][:300]
    return {"attempt": decision["attempt"], "outcome": decision["outcome"], "cause": cause, "wait": wait}
