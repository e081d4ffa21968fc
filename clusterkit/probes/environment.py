"""The environment that a program started over ssh without a terminal gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from clusterkit.facts import Output, Probe


@dataclass(frozen=True)
class Environment:
    """Names and values, which may hold secrets: `repr()` shows the names alone."""

    variables: Mapping[str, str] = field(repr=False)

    def __repr__(self) -> str:
        return f"Environment({', '.join(sorted(self.variables))})"


# NUL ends each entry, so a value may hold newlines. Without /proc and `env -0`, lines have to do.
_SHELL = """
cat /proc/self/environ 2>/dev/null || env -0 2>/dev/null || env
"""

# Set by the probe's own shells, not by the login.
_OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})


def _parse(output: Output) -> Environment:
    entries = _by_nul(output.stdout) if "\0" in output.stdout else _by_line(output.stdout)
    pairs = (entry.partition("=") for entry in entries)
    return Environment({name: value for name, equals, value in pairs if equals and name not in _OWN})


def _by_nul(text: str) -> Iterator[str]:
    return iter(text.split("\0"))


def _by_line(text: str) -> Iterator[str]:
    """A line that does not start like NAME=… belongs to the value before it."""
    entry = ""
    for line in text.splitlines():
        name, equals, _ = line.partition("=")
        if equals and name.isidentifier():
            if entry:
                yield entry
            entry = line
        else:
            entry += "\n" + line
    if entry:
        yield entry


ENVIRONMENT = Probe("environment", _SHELL, _parse)
