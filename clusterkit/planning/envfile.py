"""Variables that the user writes: `--env NAME=VALUE`, and the file of `--env-file`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from clusterkit.errors import InputError, NotFound
from clusterkit.inventory.model import Secret


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` texts of `--env` as a dict; of two with one name the last counts.

    Raises InputError for a text without `=`; the value is everything after the first one, as it is.
    """
    found = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(f"--env {name}: no value given", f"write --env {name}=VALUE")
        found[name] = value
    return found


def read(path: Path) -> dict[str, Secret]:
    """The variables of a dotenv file; `${NAME}` stays as written, nothing is expanded.

    Rules are python-dotenv's: `NAME=VALUE`, an `export` before it, comments, single quotes (taken as they
    are) and double quotes (with `\\n` and its kin), values over several lines. Of two lines with one name the
    last counts. Raises InputError with file and line, never with a value, for a line that is none of these.
    """
    from dotenv.parser import parse_stream

    found: dict[str, Secret] = {}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            bindings = list(parse_stream(stream))
    except FileNotFoundError:
        raise NotFound(
            f"--env-file {path}: no such file", "give the path of a file with NAME=VALUE lines"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"--env-file {path}: not a UTF-8 text", "save the file as UTF-8") from None
    except OSError as error:
        raise InputError(
            f"--env-file {path}: {error.strerror}", "check the path and its permissions"
        ) from None
    for binding in bindings:
        if binding.error:
            line = binding.original.line + _blank_lines(binding.original.string)
            raise InputError(
                f"{path}:{line}: not a NAME=VALUE line", 'quote a value with blanks or quotes: NAME="VALUE"'
            )
        if binding.key is not None and binding.value is None:
            line = binding.original.line + _blank_lines(binding.original.string)
            raise InputError(
                f"{path}:{line}: {binding.key} has no value",
                f"write {binding.key}=VALUE, or take the line out",
            )
        if binding.key is not None and binding.value is not None:
            found[binding.key] = Secret(binding.value)
    return found


def _blank_lines(text: str) -> int:
    """The parser counts blank lines before an entry to the entry."""
    return text[: len(text) - len(text.lstrip())].count("\n")
