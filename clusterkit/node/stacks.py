"""Every Python process of a rank can be asked for its stacks: a signal, and they are appended to a file.

The request is a real-time signal, so that a script's own SIGUSR1 stays its own. A process that
has not registered it would die of it: ask `listens` first.
"""

import os
import signal
from typing import Dict

from .files import RunFiles, make_private_directory, write_atomically

REQUEST = signal.SIGRTMIN + 7
_FILE = "CLUSTERKIT_STACKS"

# Python imports this by its name before the script begins; one that was there before is run after it.
_SITE = """\
import faulthandler
import importlib.machinery
import importlib.util
import os
import signal
import sys

_here = os.path.dirname(os.path.abspath(__file__))
if "%(name)s" in os.environ:
    try:
        _stacks = open(os.environ["%(name)s"], "a")
        faulthandler.register(signal.SIGRTMIN + 7, _stacks, all_threads=True)
    except OSError:
        pass
_others = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(importlib.util.module_from_spec(_spec))
""" % {"name": _FILE}


def arrange(files: RunFiles, local_rank: int, environ: Dict[str, str]) -> None:
    """A Python that is started with `environ` appends its stacks to `stacks_of` when REQUEST arrives.

    Where the disk does not allow it, `environ` is as before: a job does not depend on this.
    """
    try:
        make_private_directory(files.site)
        write_atomically(os.path.join(files.site, "sitecustomize.py"), _SITE.encode("ascii"))
    except OSError:
        return
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [files.site, environ.get("PYTHONPATH", "")]))
    environ[_FILE] = files.stacks(local_rank)


def ask(pid: int) -> None:
    """The process appends its stacks to its file, if it listens, is there still, and is ours to signal."""
    if listens(pid):
        try:
            os.kill(pid, REQUEST)
        except OSError:
            pass


def listens(pid: int) -> bool:
    """True if the process has registered REQUEST, as the kernel has it in /proc."""
    try:
        with open("/proc/%d/status" % pid) as status:
            caught = [line.split()[1] for line in status if line.startswith("SigCgt:")]
    except OSError:
        return False
    return bool(caught) and bool(int(caught[0], 16) >> (REQUEST - 1) & 1)
