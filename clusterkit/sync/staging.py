"""The controller's half of staging: one header, the wanted files, one answer (docs/architecture.md)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypedDict

from clusterkit.errors import CommandFailed, HostTimeout, Unreachable
from clusterkit.remote.protocol import Stream
from clusterkit.sync.manifest import Manifest

# An answer is a line; the longest names every file of a manifest by its index.
_LONGEST_ANSWER = 8 << 20
ANSWER_TIMEOUT_S = 120.0


class Staged(Protocol):
    """What staging must know of a node's plan."""

    @property
    def alias(self) -> str:
        """The host."""

    @property
    def run_dir(self) -> str:
        """Where the run's files go."""

    @property
    def workdir(self) -> str:
        """Where the code goes."""

    @property
    def log_dir(self) -> str:
        """Where the logs will be."""


class StageResult(TypedDict):
    """A node that has everything: how much had to travel, and its directories as absolute paths there."""

    received_bytes: int
    run_dir: str
    workdir: str


def send(
    stream: Stream,
    node: Staged,
    files: Mapping[str, str],
    manifest: Manifest | None,
    *,
    timeout: float = ANSWER_TIMEOUT_S,
    progress: Callable[[int], None] | None = None,
) -> StageResult:
    """Stage one node over a running `agent.pyz stage`; `files` go into its run directory, texts as UTF-8.

    Without a manifest (`--no-sync`) no code travels. `progress` is told the bytes of each piece sent. Raises
    CommandFailed with the host's own words, HostTimeout after `timeout` seconds without an answer,
    InputError if a file changed meanwhile; after any of these the node's stage has ended without an effect
    on files that were there before.
    """
    lines = _Lines(stream, node.alias, timeout)
    try:
        stream.send(json.dumps(_header(node, files, manifest)).encode("ascii") + b"\n")
        answer = lines.next("the list of files that it needs")
        for piece in _contents(manifest, _needed(answer, node, manifest)):
            stream.send(piece)
            if progress is not None:
                progress(len(piece))
        stream.finish()
    except Unreachable:
        # A host that gives up (a full disk, no Python) says why and then closes: its words are better.
        lines.raise_what_was_said()
        raise
    done = lines.next("the end of staging")
    try:
        return StageResult(
            received_bytes=int(done["received_bytes"]),
            run_dir=str(done["run_dir"]),
            workdir=str(done["workdir"] or node.workdir),
        )
    except (KeyError, TypeError, ValueError):
        raise _strange(node.alias, done) from None


def _header(node: Staged, files: Mapping[str, str], manifest: Manifest | None) -> dict[str, Any]:
    sync = None if manifest is None else {"root": node.workdir, "manifest": manifest.rows()}
    return {
        "run_dir": node.run_dir,
        "files": dict(files),
        "log_dir": node.log_dir,
        "workdir": node.workdir,
        "sync": sync,
    }


def _contents(manifest: Manifest | None, indexes: Iterable[int]) -> Iterator[bytes]:
    """The bytes of the wanted files, one after the other."""
    for index in indexes:
        if manifest is not None:
            yield from manifest.content(manifest.entries[index])


def _needed(answer: Mapping[str, Any], node: Staged, manifest: Manifest | None) -> list[int]:
    """The indexes that the host asks for; what it may not ask for is an error."""
    count = 0 if manifest is None else len(manifest.entries)
    need = answer.get("need")
    if not isinstance(need, list) or not all(type(index) is int and 0 <= index < count for index in need):
        raise _strange(node.alias, answer)
    return need


class _Lines:
    """JSON lines from a stream, each within a time limit."""

    def __init__(self, stream: Stream, host: str, timeout: float) -> None:
        self._stream = stream
        self._host = host
        self._timeout = timeout
        self._rest = b""

    def next(self, awaited: str) -> dict[str, Any]:
        """The next line's object. Raises CommandFailed if it is `{"error": …}`, or if none comes any more."""
        line = self._line(awaited)
        try:
            answer = json.loads(line.decode("utf-8"))
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise _strange(self._host, line.decode("utf-8", "replace"))
        if "error" in answer:
            hint = f"mend on {self._host} what is named, then launch again"
            raise CommandFailed(self._host, f"staging failed: {answer['error']}", hint)
        return answer

    def raise_what_was_said(self) -> None:
        """Raise CommandFailed if the host has said what is wrong; else return, within two seconds."""
        self._timeout = 2.0
        try:
            self.next("the reason")
        except (HostTimeout, Unreachable):
            return

    def _line(self, awaited: str) -> bytes:
        end = time.monotonic() + self._timeout
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if len(self._rest) > _LONGEST_ANSWER:
                raise _strange(self._host, self._rest[:200].decode("utf-8", "replace"))
            if left <= 0:
                raise self._too_late(awaited)
            self._rest += self._piece(left, awaited)
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _piece(self, limit: float, awaited: str) -> bytes:
        try:
            piece = self._stream.read(65536, timeout=limit)
        except HostTimeout:
            raise self._too_late(awaited) from None
        if not piece:
            raise self._ended()
        return piece

    def _too_late(self, awaited: str) -> HostTimeout:
        return HostTimeout(
            self._host,
            f"staging: waited {self._timeout:.0f} s for {awaited}",
            "is the disk of `remote_dir` slow or full, or its file server gone?",
        )

    def _ended(self) -> CommandFailed:
        result = self._stream.wait(10)
        said = result.last_lines(3) or f"exit status {result.status}"
        hint = (
            "set `python` in the inventory to a Python 3.6 or newer on that host"
            if result.status in (2, 127)
            else ""
        )
        return CommandFailed(self._host, f"staging ended early: {said}", hint)


def _strange(host: str, answer: object) -> CommandFailed:
    return CommandFailed(
        host,
        f"staging got an answer that is none of its own: {str(answer)[:200]!r}",
        "this is a bug of clusterkit, or something on the host writes into its channel",
    )
