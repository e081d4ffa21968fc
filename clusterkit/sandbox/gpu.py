"""A stand-in `nvidia-smi` for hosts without a GPU, and the file that says what it answers."""

from __future__ import annotations

from clusterkit.sandbox.files import File


def files(count: int, python: str) -> tuple[File, ...]:
    """The stand-in and its answers for `count` GPUs; nothing for none."""
    return ()
