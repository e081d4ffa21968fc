"""One log over all attempts of a run: after the end of one attempt's file comes the next one's."""

from typing import Any, Callable, Dict, Optional

from . import attempts
from .files import RunFiles
from .follow import Log, Piece
from .plan import Plan
from .times import Times


class AttemptLog:
    """A log, from the attempt that `wanted` names on (`{"attempt": N, "offset": …}`), else from `attempt`."""

    def __init__(
        self,
        files: RunFiles,
        plan: Plan,
        path: Callable[[RunFiles, Plan], str],
        wanted: Dict[str, Any],
        attempt: int,
        local: Optional[int] = None,
    ) -> None:
        """`local` is the local rank whose log it is; None for one of which no times are kept."""
        self._local = local
        self._files = files
        self._plan = plan
        self._path = path
        self.attempt = int(wanted.get("attempt", attempt))
        self._log = self._open(wanted)

    def _open(self, wanted: Dict[str, Any]) -> Log:
        files, plan = attempts.of(self._files, self._plan, self.attempt)
        times = None if self._local is None else Times(files.times(self._local))
        return Log(lambda: self._path(files, plan), wanted, times)

    def read(self, newest: int) -> Optional[Piece]:
        """The next bytes; None if there are none now. `newest`: the attempt up to which to read."""
        piece = self._log.read()
        while piece is None and self.attempt < newest:
            # A new attempt begins when nothing of the one before it is left to write.
            self.attempt += 1
            self._log = self._open({"offset": 0})
            piece = self._log.read()
        return piece
