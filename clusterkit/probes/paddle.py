"""Which Paddle an interpreter has, read from its package's metadata: Paddle itself is never imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Paddle:
    """An installed Paddle, from its package metadata; `cuda` and `nccl` are "" for a build without GPUs."""

    distribution: str
    version: str
    cuda: str = ""
    nccl: str = ""

    @property
    def for_gpu(self) -> bool:
        """True for a build that can use NVIDIA GPUs."""
        return bool(self.cuda) or self.distribution == "paddlepaddle-gpu"


def paddle_of(said: Mapping[str, str] | None) -> Paddle | None:
    """What FIND_PADDLE has left in `paddle`."""
    return Paddle(**said) if said else None


# A piece of a program for Python 3.6 and newer: afterwards `paddle` is a dict of Paddle's fields, or None.
# Importing Paddle would take seconds and 300 MB, and fails where only the launch environment is complete. Nor
# is anything else imported that the interpreter has not loaded by itself: `re` alone doubles its start-up.
FIND_PADDLE = r"""
import os, sys
def said(folder):
    found = {}
    try:
        with open(os.path.join(folder, "paddle", "version", "__init__.py")) as text:
            for line in text:
                name, equals, value = line.partition("=")
                value = value.strip()
                if equals and len(value) > 1 and value[0] == value[-1] == "'":
                    found[name.strip()] = value[1:-1]
    except (IOError, UnicodeDecodeError):
        pass
    return found
def find_paddle():
    for folder in sys.path:
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:
            continue
        for info in names:
            stem, dot, kind = info.rpartition(".")
            name, dash, version = stem.partition("-")
            if name.startswith("paddlepaddle") and dash and version and kind in ("dist-info", "egg-info"):
                found = {"distribution": name.replace("_", "-"), "version": version.split("-")[0]}
                versions = said(folder)
                for key in ("cuda", "nccl"):
                    value = versions.get(key + "_version", "")
                    found[key] = "" if value in ("False", "None", "0") else value
                return found
    return None
paddle = find_paddle()
"""
