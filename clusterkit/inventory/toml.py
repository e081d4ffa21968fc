"""TOML files: the project's own, and the tables that it names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from clusterkit.errors import InputError


def read_toml(
    path: Path, shown: str = "", hint: str = "see the shipped file for the format"
) -> dict[str, Any]:
    """What the file says. Raises InputError, naming it as `shown`, if it is missing or not valid TOML."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]
    name = shown or str(path)
    try:
        loaded: dict[str, Any] = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}", hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: not valid TOML: {error}", hint) from None
    return loaded
