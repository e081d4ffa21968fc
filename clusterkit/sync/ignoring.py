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
    from pathspec import GitIgnoreSpec

FILES = (".clusterkitignore", ".gitignore")

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
class _Rules:
    """One ignore file; `base` is its folder from the top, with a slash at its end ("" for the top itself)."""

    base: str
    spec: GitIgnoreSpec

    def say(self, path: str, is_folder: bool) -> bool | None:
        """True to leave `path` out, False to bring it back, None if no line is about it."""
        name = path[len(self.base) :]
        said = self.spec.check_file(f"{name}/" if is_folder else name)
        if said.include and is_folder and said.index is not None and self._is_about_inside(said.index, name):
            return None
        return said.include

    def _is_about_inside(self, index: int, name: str) -> bool:
        """`data/**` is about everything in `data`, not about `data` itself: `!data/keep` may look into it."""
        return self.spec.patterns[index].match_file(name) is None


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
    return os.path.lexists(folder / "pyvenv.cfg") or (folder / "conda-meta").is_dir()


def _read(path: Path, base: str) -> tuple[_Rules, ...]:
    """The rules of one file; none if there is no such file. OSError if there is one that cannot be read."""
    from pathspec import GitIgnoreSpec

    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return ()
    return (_Rules(base, GitIgnoreSpec.from_lines(text.splitlines())),)
