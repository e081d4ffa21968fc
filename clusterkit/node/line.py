"""The line between the host and a container: two named pipes in the run's records, one JSON object a line.

Whoever closes an end has ended, and the other side sees it at once, whatever becomes of the container
runtime's daemon: nothing here asks it.
"""

import json
import os
from typing import Any, Dict, List, Optional

from .files import RunFiles, remove


class Line:
    """One side's two ends. `is_closed` once the other side, having been there, is gone."""

    def __init__(self, reads: int, writes: int, heard: bool) -> None:
        self.reads = reads
        self._writes = writes
        self._buffer = b""
        # Before anybody has opened the other end it reads as closed.
        self._heard = heard
        self.is_closed = False

    def say(self, **message: Any) -> None:
        """The message is on its way; a side that is not there any more gets nothing."""
        try:
            os.write(self._writes, json.dumps(message).encode("ascii") + b"\n")
        except OSError:
            pass

    def hear(self) -> List[Dict[str, Any]]:
        """What has come since the last call."""
        while True:
            try:
                data = os.read(self.reads, 4096)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.is_closed = self._heard
                break
            self._heard = True
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line.decode("ascii")) for line in lines]


def lay(files: RunFiles) -> Line:
    """The host's side, with new pipes. Raises OSError."""
    for path in (files.to_inside, files.from_inside):
        remove(path)
        os.mkfifo(path, 0o600)
    reads = os.open(files.from_inside, os.O_RDONLY | os.O_NONBLOCK)
    # Opened for both, since nobody reads yet.
    return Line(reads, os.open(files.to_inside, os.O_RDWR | os.O_NONBLOCK), False)


def pick_up(files: RunFiles) -> Optional[Line]:
    """The side of the container; None where nobody on the host waits for it."""
    try:
        writes = os.open(files.from_inside, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
    # The host has held its end open since before we were started.
    return Line(os.open(files.to_inside, os.O_RDONLY | os.O_NONBLOCK), writes, True)
