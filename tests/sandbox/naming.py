"""Names that no other process on this machine gives its sandboxes."""

from __future__ import annotations

import os
from collections.abc import Callable

from clusterkit.sandbox import Sandbox

Make = Callable[..., Sandbox]


def unique(suffix: str = "") -> str:
    """A sandbox name that only this process uses."""
    return f"test-{os.getpid()}{'-' if suffix else ''}{suffix}"
