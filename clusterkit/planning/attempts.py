"""How often a job may be started again, and where a run stands when it is staged."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The back-off before the first restart, in seconds; doubled before each further one, up to the limit.
WAIT_S = 5.0
LONGEST_WAIT_S = 60.0

# Where a job saves what it resumes from, unless the user says otherwise: in its working directory.
CHECKPOINTS = "checkpoints"


ON_HANG = ("report", "dump", "stop", "restart")


@dataclass(frozen=True)
class Attempts:
    """`first` is the attempt that the nodes begin with, `history` says how those before it ended.

    `on_hang` is what becomes of a job whose ranks are all silent: one of `ON_HANG`.
    """

    max_restarts: int = 0
    first: int = 0
    history: tuple[Mapping[str, Any], ...] = ()
    on_hang: str = "report"

    def as_json(self) -> dict[str, Any]:
        """These keys of plan.json (docs/architecture.md)."""
        return {
            "attempt": self.first,
            "restarts": {"most": self.max_restarts, "wait": WAIT_S, "longest_wait": LONGEST_WAIT_S},
            "history": [dict(each) for each in self.history],
            "on_hang": self.on_hang,
        }


def checkpoint_dir(wanted: str, workdir: str, home: str) -> str:
    """`CLUSTERKIT_CHECKPOINT_DIR` as an absolute path: `wanted` as seen from the working directory."""
    if wanted == "~" or wanted.startswith("~/"):
        wanted = posixpath.join(home, wanted[2:])
    return posixpath.normpath(posixpath.join(workdir, wanted or CHECKPOINTS))
