"""Interpreters that have an older PaddlePaddle, made once for this user and kept in a cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Paddle 2.6 and older read messages that only this protobuf still understands.
_WITH: dict[str, tuple[str, tuple[str, ...]]] = {
    "1.8.5": ("3.7", ("paddlepaddle==1.8.5", "protobuf==3.20.3")),
    "2.6.2": ("3.10", ("paddlepaddle-gpu==2.6.2", "protobuf==3.20.3", "numpy<2", "setuptools")),
    # A fifth of the size, for an image.
    "2.6.2-cpu": ("3.10", ("paddlepaddle==2.6.2", "protobuf==3.20.3", "numpy<2", "setuptools")),
}
INSTALL_LIMIT_S = 240


def python_with_paddle(version: str) -> str:
    """The path of an interpreter that has this PaddlePaddle; skips the test where there can be none."""
    release, packages = _WITH[version]
    base = _interpreter(release)
    if base is None:
        pytest.skip(f"PaddlePaddle {version} needs Python {release}, which this machine does not have")
    folder = _cache() / f"paddle-{version}-python-{release}"
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(base, folder, packages)
            (folder / "complete").touch()
    return str(python)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "clusterkit-tests"


def _install(base: str, folder: Path, packages: tuple[str, ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
    commands = [
        [base, "-m", "venv", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", *quiet, *packages],
    ]
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{packages[0]} could not be installed within {INSTALL_LIMIT_S} s")
        if done.returncode:
            words = (done.stderr.strip() or "no output").splitlines()[-1]
            pytest.skip(f"{packages[0]} cannot be installed here: {words}")


def _interpreter(release: str) -> str | None:
    """A Python of this release on the PATH, or installed beside the one that runs the tests."""
    name = f"python{release}"
    beside = sorted(Path(sys.base_prefix).resolve().parent.glob(f"{release}.*/bin/{name}"))
    for candidate in (shutil.which(name), *map(str, beside)):
        # What stands on the PATH may be a stand-in that only says that there is none.
        if (
            candidate
            and subprocess.run([candidate, "-c", ""], capture_output=True, timeout=60).returncode == 0
        ):
            return candidate
    return None
