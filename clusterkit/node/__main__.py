"""The commands of `agent.pyz`; what each does stands in docs/architecture.md, "What runs on a host"."""

import json
import os
import signal
import sys
from typing import Callable, Dict, List

_USAGE = "usage: agent.pyz stage | start|attach|supervise|rank|contain|enter|state|stacks|stop RUN_DIR …"


def main(arguments: List[str]) -> int:
    """Run one command; its exit status."""
    commands: Dict[str, Callable[[List[str]], int]] = {
        "stage": _stage,
        "start": _start,
        "attach": _attach,
        "supervise": _supervise,
        "rank": _rank,
        "contain": _contain,
        "enter": _enter,
        "state": _state,
        "stacks": _stacks,
        "stop": _stop,
    }
    if not arguments or arguments[0] not in commands or (arguments[0] != "stage" and len(arguments) < 2):
        sys.stderr.write(_USAGE + "\n")
        return 2
    # Each command imports what it needs: a rank entry starts once a rank, and shall start fast.
    return commands[arguments[0]](arguments[1:])


def _stage(_arguments: List[str]) -> int:
    from . import stage

    return stage.main(*stage.standard_streams())


def _start(arguments: List[str]) -> int:
    from . import attach, detach, plan

    try:
        files, known = plan.open_run(arguments[0])
        detach.start(files, known)
    except (plan.PlanError, detach.StartError) as error:
        return attach.refuse(str(error))
    return attach.main(files, known)


def _attach(arguments: List[str]) -> int:
    from . import attach, plan

    try:
        return attach.main(*plan.open_run(arguments[0]))
    except plan.PlanError as error:
        return attach.refuse(str(error))


def _supervise(arguments: List[str]) -> int:
    from . import supervisor

    umask = int(arguments[arguments.index("--umask") + 1], 8) if "--umask" in arguments else 0o022
    return supervisor.main(arguments[0], umask)


def _rank(arguments: List[str]) -> int:
    from . import rank

    if len(arguments) < 2:
        sys.stderr.write(_USAGE + "\n")
        return 2
    code = rank.run(arguments[0], arguments[1:])
    rank.end_like(code)
    return code


def _contain(arguments: List[str]) -> int:
    from . import container, rank

    code = container.main(arguments[0], int(arguments[1]), int(arguments[2]), int(arguments[3], 8))
    rank.end_like(code)
    return code


def _enter(arguments: List[str]) -> int:
    from . import inside

    return inside.main(arguments[0])


def _state(arguments: List[str]) -> int:
    from . import plan, record

    try:
        state = record.current(*plan.open_run(arguments[0]))
    except plan.PlanError as error:
        return _print({"error": str(error)})
    if state is None:
        return _print({"error": "%s: never started" % arguments[0]})
    if "--live" in arguments:
        from . import glance

        state["live"] = glance.of(state)
    return _print(state)


def _stacks(arguments: List[str]) -> int:
    from . import dump, plan, record

    try:
        files, known = plan.open_run(arguments[0])
    except plan.PlanError as error:
        return _print({"error": str(error)})
    state = record.current(files, known)
    return _print({"processes": dump.collect(files, state) if state else []})


def _stop(arguments: List[str]) -> int:
    from . import plan, stop
    from .files import RunFiles

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # Once begun it is done to the end.
    if not os.path.exists(RunFiles(arguments[0]).plan):
        return _print({"stopped": True, "was": "never started", "killed": [], "left": []})
    try:
        files, known = plan.open_run(arguments[0])
    except plan.PlanError as error:
        return _print({"error": str(error)})
    given = float(arguments[arguments.index("--grace") + 1]) if "--grace" in arguments else None
    return _print(stop.stop(files, known, known.timeouts.grace if given is None else given))


def _print(value: Dict[str, object]) -> int:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
    return 1 if "error" in value or value.get("left") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
