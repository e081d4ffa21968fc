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
# Importing Paddle would take seconds and 300 MB, and fails where only the launch environment is complete.
FIND_PADDLE = r"""
import glob, os, re, sys
paddle = None
for folder in sys.path:
    for info in sorted(glob.glob(os.path.join(glob.escape(folder or "."), "paddlepaddle*-*.*-info"))):
        name = re.match(r"(paddlepaddle[^-]*)-(.+)\.(?:dist|egg)-info$", os.path.basename(info))
        if name and paddle is None:
            paddle = {"distribution": name.group(1).replace("_", "-"), "version": name.group(2).split("-")[0]}
            try:
                with open(os.path.join(folder, "paddle", "version", "__init__.py")) as text:
                    said = dict(re.findall(r"^(\w+)\s*=\s*'([^'\n]*)'", text.read(), re.M))
            except (IOError, UnicodeDecodeError):
                said = {}
            for key in ("cuda", "nccl"):
                value = said.get(key + "_version", "")
                paddle[key] = "" if value in ("False", "None", "0") else value
"""
