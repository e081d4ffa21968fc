"""Python stacks as text → frames, and ranks with equal stacks together (pure).

Read are faulthandler's text (docs.python.org/3/library/faulthandler.html) and that of `py-spy dump`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

_THREAD = re.compile(
    r"^(?:Current thread|Thread) \S+.*\(most recent call first\):$|^Thread \S+ \(.*\)(?:: .*)?$"
)
_FRAME = re.compile(r'^ +File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_SPY_FRAME = re.compile(r"^ +(?P<function>\S.*) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")
# Where what is not the job's own lies.
_LIBRARY = re.compile(r"(?:^|/)(?:site|dist)-packages/|/lib(?:64)?/python\d|^<")


@dataclass(frozen=True)
class Frame:
    """One call: where it stands. `line` is 0 where it is not known."""

    file: str
    line: int
    function: str

    @property
    def own(self) -> bool:
        """True if it is the job's own code, not Python's or a package's."""
        return not _LIBRARY.search(self.file)

    @property
    def place(self) -> str:
        """`train.py:88`."""
        return f"{PurePosixPath(self.file).name}:{self.line}"


@dataclass(frozen=True)
class Thread:
    """One thread's heading and its calls, the innermost first."""

    heading: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Group:
    """Processes (`runs.processes`) whose main threads stand at the same place; the threads of the first."""

    processes: tuple[int, ...]
    threads: tuple[Thread, ...]

    @property
    def main(self) -> Thread:
        """The main thread."""
        return main(self.threads)

    @property
    def where(self) -> str:
        """`all_reduce, from train.py:88`; `dataset.py:88 (load)` where the job's own code is what runs."""
        frames = self.main.frames
        if not frames:
            return "no Python code"
        own = next((number for number, frame in enumerate(frames) if frame.own), 0)
        if own == 0:
            return f"{frames[0].place} ({frames[0].function})"
        # What the job itself called says more than what that is made of.
        return f"{frames[own - 1].function}, from {frames[own].place}"


def threads(text: str, workdir: str) -> tuple[Thread, ...]:
    """The threads of one dump, in its order; lines that are none of ours are passed over.

    Files below `workdir`, where the job's code lies on that host, are named from there on, and those of
    packages from their package on, so that they are the same on all hosts.
    """
    found: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            found.append((line.rstrip(":"), []))
        elif found and (frame := _FRAME.match(line) or _SPY_FRAME.match(line)):
            number = frame["line"] or ""
            line_number = int(number) if number.isdecimal() else 0
            found[-1][1].append(Frame(_short(frame["file"], workdir), line_number, frame["function"]))
    return tuple(Thread(heading, tuple(frames)) for heading, frames in found)


def _short(file: str, workdir: str) -> str:
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in file:
            return file[file.index(mark) :].lstrip("/")
    return file.removeprefix(workdir.rstrip("/") + "/")


def main(stack: Sequence[Thread]) -> Thread:
    """The main thread: the one py-spy names so; faulthandler lists the newest thread first."""
    named = [thread for thread in stack if thread.heading.endswith('"MainThread"')]
    return named[0] if named else stack[-1] if stack else Thread("", ())


def grouped(stacks: Mapping[int, Sequence[Thread]]) -> tuple[Group, ...]:
    """Processes whose main threads stand at the same place together, the largest group first.

    The same place is the same chain of functions, and the same lines of the job's own code: in a library's
    loop that waits, two ranks are rarely at the same line.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for process in sorted(stacks, key=lambda process: (process < 0, abs(process))):
        key = tuple(
            (frame.file, frame.function, frame.line if frame.own else 0)
            for frame in main(stacks[process]).frames
        )
        groups.setdefault(key, []).append(process)
    made = [Group(tuple(members), tuple(stacks[members[0]])) for members in groups.values()]
    return tuple(sorted(made, key=lambda group: -len(group.processes)))
