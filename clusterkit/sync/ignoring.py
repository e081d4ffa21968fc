"""Which names are left out: `.clusterkitignore`, `.gitignore`, and what is never wanted on a host.

Rules of one folder's file hold for all below it. The deepest file that says something about a name decides,
in it the last line; any `.clusterkitignore` goes before every `.gitignore`, so `!name` in one brings back
what git ignores. What lies in a folder that is left out cannot be brought back, as in git.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec.pattern import Pattern

FILES = (".clusterkitignore", ".gitignore")

_END = "\x01"

# Never sent: other tools' own data and caches, which no script imports or reads.
FOLDERS = frozenset(
    (
        *(".git", ".hg", ".svn", ".bzr", ".jj"),
        *("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints"),
        *(".tox", ".nox", ".eggs", ".idea", ".vscode", ".vs", "node_modules", ".clusterkit", ".Trash"),
    )
)
SUFFIXES = (".pyc", ".pyo", ".swp", ".swo", "~")
NAMES = frozenset((".git", ".DS_Store", "Thumbs.db"))


@dataclass(frozen=True)
class _Line:
    """One line of an ignore file, about the last part of a path alone.

    pathspec's own answer to "is `a/b` left out?" includes what it knows of `a`. We ask folder by folder, as
    git does, so each name gets an end mark that only the last part of a pattern has too.
    """

    pattern: Pattern
    brings_back: bool
    folders_only: bool

    def is_about(self, name: str, is_folder: bool) -> bool:
        """True if the pattern matches `name` itself, not only a folder above it."""
        return (is_folder or not self.folders_only) and self.pattern.match_file(name + _END) is not None


@dataclass(frozen=True)
class _Rules:
    """One ignore file; `base` is its folder from the top, with a slash at its end ("" for the top itself)."""

    base: str
    lines: tuple[_Line, ...]

    def say(self, path: str, is_folder: bool) -> bool | None:
        """True to leave `path` out, False to bring it back, None if no line is about it. The last decides."""
        name = path[len(self.base) :]
        for line in reversed(self.lines):
            if line.is_about(name, is_folder):
                return not line.brings_back
        return None


@dataclass(frozen=True)
class Ignores:
    """The rules that hold in one folder: for each kind of ignore file, from the deepest to the top."""

    tiers: tuple[tuple[_Rules, ...], ...] = ((), ())

    def inside(self, folder: Path, base: str) -> Ignores:
        """The rules that hold in `folder`, whose path from the top is `base` ("" for the top itself)."""
        prefix = f"{base}/" if base else ""
        found = [_read(folder / name, prefix) for name in FILES]
        return Ignores(tuple((*new, *old) for new, old in zip(found, self.tiers, strict=True)))

    def leave_out(self, path: str, is_folder: bool) -> bool:
        """True if `path`, relative to the top, is not to be sent."""
        for tier in self.tiers:
            for rules in tier:
                said = rules.say(path, is_folder)
                if said is not None:
                    return said
        return False


def from_above(root: Path) -> tuple[Ignores, str]:
    """The rules of the folders above `root`, and the path of `root` from the topmost of them.

    The topmost is the folder of the git repository that `root` lies in; with none there are no rules and "".
    A root that these rules leave out was chosen on purpose: it is taken as it is.
    """
    top = next((folder for folder in root.parents if os.path.lexists(folder / ".git")), None)
    if top is None or os.path.lexists(root / ".git"):
        return Ignores(), ""
    parts = root.relative_to(top).parts
    ignores = Ignores()
    for depth, _ in enumerate(parts):
        base = "/".join(parts[:depth])
        ignores = ignores.inside(top / base, base)
        if ignores.leave_out("/".join(parts[: depth + 1]), is_folder=True):
            return Ignores(), ""
    return ignores, "/".join(parts)


def never(name: str, is_folder: bool) -> bool:
    """True for a name that is left out whatever the ignore files say."""
    if is_folder:
        return name in FOLDERS
    return name in NAMES or name.endswith(SUFFIXES)


def is_virtual_environment(folder: Path) -> bool:
    """True for a virtual environment or a conda environment: it would not run on another machine."""
    return os.path.lexists(folder / "pyvenv.cfg") or os.path.lexists(folder / "conda-meta")


def _read(path: Path, base: str) -> tuple[_Rules, ...]:
    """The rules of one file; none if there is no such file. OSError if there is one that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return ()
    lines = (_line(line) for line in text.split("\n"))
    return (_Rules(base, tuple(line for line in lines if line is not None)),)


def _line(text: str) -> _Line | None:
    """What a line says; None for a comment, an empty line, and a pattern that is none (git skips it too)."""
    from pathspec import GitIgnoreSpec

    text = _without_trailing_blanks(text.rstrip("\r"))
    core = text.rstrip("/")
    if not core or core == "!" or core.startswith("#"):
        return None
    everything_below = core.endswith("/**") or core in ("**", "!**")
    marked = f"{core[:-2]}**/*{_END}" if everything_below else core + _END
    try:
        (pattern,) = GitIgnoreSpec.from_lines([marked]).patterns
    except ValueError:
        return None
    return _Line(pattern, brings_back=core.startswith("!"), folders_only=core != text)


def _without_trailing_blanks(text: str) -> str:
    """Blanks at the end do not count, unless a backslash is before them."""
    bare = text.rstrip(" ")
    return bare + " " if len(bare) < len(text) and bare.endswith("\\") else bare
