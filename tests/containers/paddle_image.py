"""A training image with the real Paddle: the Python that runs this with its libraries, and what Paddle needs.

It is written as a tar for `docker import`, file by file: it has some 800 MB. As a program it goes to stdout.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from io import BytesIO
from pathlib import Path
from typing import IO

PACKAGES = "opt/packages"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"/{PACKAGES}"}
# Of the standard library what no program needs; of Paddle what only a compiler does.
_LEFT_OUT = re.compile(r"/(__pycache__|test|tests|idlelib|tkinter|ensurepip|config-[^/]*|site-packages)(/|$)")
# Paddle itself calls some when it is imported.
_TOOLS = ("sh", "cat", "grep", "sleep")
_FOR_COMPILERS = re.compile(r"^paddle/(include|libs/.*\.a$)")


def write(sink: IO[bytes]) -> None:
    """The whole file system, as a tar."""
    with tarfile.open(fileobj=sink, mode="w|") as archive:
        for folder in ("tmp", "root", "proc", "sys", "dev", "etc", "opt", PACKAGES):
            _folder(archive, folder)
        _text(archive, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
        packages = dict(_packages())
        standard = set(_standard_library())
        tools = {name: Path(f"/bin/{name}").resolve() for name in _TOOLS}
        programs = {*tools.values(), Path(sys.executable).resolve()}
        compiled = [path for path in (*programs, *standard, *packages.values()) if _is_compiled(path)]
        for source in sorted(standard | programs | set(_libraries((*programs, *compiled)))):
            _file(archive, str(source)[1:], source)
        for name, source in sorted(packages.items()):
            _file(archive, f"{PACKAGES}/{name}", source)
        for name, program in tools.items():
            _link(archive, f"bin/{name}", str(program))
        _link(archive, "usr/bin/python3", str(Path(sys.executable).resolve()))


def _folder(archive: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    archive.addfile(entry)


def _text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o644
    archive.addfile(entry, BytesIO(text.encode()))


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _file(archive: tarfile.TarFile, name: str, source: Path) -> None:
    with source.open("rb") as content:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = source.stat().st_size, 0o755
        archive.addfile(entry, content)


def _standard_library() -> Iterator[Path]:
    folder = Path(sysconfig.get_path("stdlib"))
    for path in folder.rglob("*"):
        if path.is_file() and not _LEFT_OUT.search(str(path)[len(str(folder)) :]):
            yield path


def _packages() -> Iterator[tuple[str, Path]]:
    """Paddle and all that it requires: name below the packages' folder → file here."""
    # Paddle 2.6 imports setuptools and does not say so.
    waiting, seen = ["paddlepaddle", "setuptools"], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # Only on other systems, or of an extra.
        waiting += [_name(text) for text in found.requires or ()]
        for file in found.files or ():
            place = Path(str(file.locate()))
            text = str(file)
            if text.startswith("..") or "__pycache__" in text or _FOR_COMPILERS.search(text):
                continue
            if place.is_file():
                yield text, place


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return match.group(0) if match else ""


def _is_compiled(path: Path) -> bool:
    return ".so" in path.name or path.suffix == ""


def _libraries(programs: Iterable[Path]) -> Iterator[Path]:
    """What ldd lists, by the names that the programs ask for; packages find their own beside them."""
    own = str(Path(sysconfig.get_path("purelib")))
    said = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, timeout=120, check=False
    ).stdout
    for path in sorted(set(re.findall(r"(?:=> |^\t)(/\S+) \(", said, re.MULTILINE))):
        if not path.startswith(own):
            yield Path(path)


if __name__ == "__main__":
    write(sys.stdout.buffer)
