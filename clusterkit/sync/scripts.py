"""The short shell scripts that bring the agent to a host, speak to it there, and take it away again.

Every one ends in `exec`, so that the channel's stdin and stdout belong to the program. Paths may begin with
`~`, which is the login user's home on the host; everything is quoted. Python runs isolated (`-I`): neither
`PYTHONPATH` nor a `json.py` in the home can get in its way.
"""

from __future__ import annotations

import shlex
from textwrap import dedent

# Read by Python 3.6 and newer. File descriptor 0 is read directly: a buffered reader would take bytes that
# belong to the agent's `stage`, which goes on with the same stdin after exec.
_RECEIVE = dedent(
    """
    import json, os, sys
    folder, size = os.path.abspath(os.path.expanduser(sys.argv[1])), int(sys.argv[2])
    if sys.version_info < (3, 6):
        sys.exit("Python 3.6 or newer is needed, this is " + sys.version.split()[0])
    os.umask(0o077)
    agent = os.path.join(folder, "agent.pyz")
    part = agent + ".part"
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        os.chmod(folder, 0o700)
        if os.path.lexists(part):
            os.unlink(part)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            while size:
                data = os.read(0, min(size, 1048576))
                if not data:
                    sys.exit("the connection ended before the agent had arrived")
                out.write(data)
                size -= len(data)
        os.rename(part, agent)
    except OSError as error:
        print(json.dumps({"error": "%s: %s" % (error.filename or folder, error.strerror)}))
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, "-I", agent, "stage"])
    """
).strip()


def bootstrap(python: str, run_dir: str, agent_size: int) -> str:
    """A script that takes `agent_size` bytes from stdin as `RUN_DIR/agent.pyz` and becomes its `stage`.

    New directories are 0700, the agent is 0600. What follows on stdin is read by `stage` from its first byte.
    """
    command = f"{shell_path(python)} -I -c {shlex.quote(_RECEIVE)} {shell_path(run_dir)} {agent_size}"
    return f"{_found(python)}exec {command}\n"


def agent_script(python: str, run_dir: str, verb: str, *arguments: str) -> str:
    """A script that becomes a command of the run's agent: `state`, `stop --grace 40`."""
    agent = shell_path(run_dir.rstrip("/") + "/agent.pyz")
    words = " ".join(shlex.quote(argument) for argument in arguments)
    command = f"{shell_path(python)} -I {agent} {shlex.quote(verb)} {shell_path(run_dir)} {words}".rstrip()
    missing = f'echo "no such run here: there is no "{agent} >&2; exit 66'
    return f"{_found(python)}[ -f {agent} ] || {{ {missing}; }}\nexec {command}\n"


def attach_script(python: str, run_dir: str, verb: str) -> str:
    """A script that becomes `start` (which detaches the supervisor first) or `attach`."""
    return agent_script(python, run_dir, verb)


def removal(python: str, run_dir: str, log_dir: str) -> str:
    """A script that ends what may run of this run on the host, and takes its directories away.

    Only directories that carry the run's id are touched: `run_dir`, and the parent of a `log_dir` elsewhere.
    """
    run, agent, plan = (shell_path(run_dir.rstrip("/") + name) for name in ("", "/agent.pyz", "/plan.json"))
    # Without a plan nothing can have been started.
    stop = f"{shell_path(python)} -I {agent} stop {run} --grace 0 </dev/null >/dev/null || exit 1"
    lines = [f"if [ -f {agent} ] && [ -f {plan} ]; then {stop}; fi", f"rm -rf -- {run}"]
    parent, run_id = log_dir.rstrip("/").rpartition("/")[0], run_dir.rstrip("/").rpartition("/")[2]
    if parent != run_dir.rstrip("/") and parent.rpartition("/")[2] == run_id:
        lines.append(f"rm -rf -- {shell_path(parent)}")
    return "\n".join(lines) + "\n"


def _found(python: str) -> str:
    """A line that says in words that there is no such interpreter; shells say it in many ways."""
    word = shell_path(python)
    return f'command -v {word} >/dev/null 2>&1 || {{ echo "there is no "{word} >&2; exit 127; }}\n'


def shell_path(path: str) -> str:
    """`path` as one shell word; a `~/` at its start is the home of whoever runs the script."""
    if path == "~":
        return '"$HOME"'
    if path.startswith("~/"):
        return f'"$HOME"/{shlex.quote(path[2:])}'
    return shlex.quote(path)
