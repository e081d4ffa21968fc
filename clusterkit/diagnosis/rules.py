"""The known failures: how they look, what they mean and what to do, from a file that a site may add to.

Shipped as `clusterkit/data/diagnoses.toml`; `diagnoses` of `clusterkit.toml` names a file in the same format,
whose rules come first and replace ours of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from clusterkit.errors import InputError
from clusterkit.inventory import nearness
from clusterkit.inventory.toml import read_toml
from clusterkit.tables import DATA

# What a rule's patterns are held against: a rank's log, the log of Paddle's launcher, a host's kernel log
# around the failure, how a rank ended ("signal 9", "exit code 1"), and what clusterkit said.
Where = Literal["rank", "launcher", "kernel", "end", "reason"]
# What else is shown of the host where a rule fits.
Also = Literal["gpu processes"]

# Gloo prints a port with its two bytes swapped: the group of such a pattern has this name, and the sentences
# have the real port.
GLOO_PORT = "gloo_port"

# Values that every sentence may name besides the groups of the rule's own patterns.
GIVEN = frozenset({"host", "who", "rank", "run", "xid_advice"})
# Of these there is always a value.
_ALWAYS = frozenset({"host", "who", "run"})

_KEYS = ("where", "patterns", "meaning", "cure", "samples", "symptom", "first_only", "also")
_PLACE = re.compile(r"\{(\w+)(?:\|([^{}]*))?\}")


@dataclass(frozen=True)
class Rule:
    """One known failure.

    A `symptom` is what other failures look like too: it gives way to any other rule. `first_only` says that
    ranks which failed later show it as a matter of course, so only the log of the first one counts.
    """

    name: str
    where: tuple[Where, ...]
    patterns: tuple[re.Pattern[str], ...]
    meaning: str
    cure: str
    samples: tuple[str, ...]
    symptom: bool = False
    first_only: bool = False
    also: tuple[Also, ...] = ()


def load(site: Path | None = None) -> tuple[Rule, ...]:
    """The site's rules, then the shipped ones that it does not replace.

    Raises InputError naming file, rule and key for a file that cannot be used.
    """
    ours = {rule.name: rule for rule in _rules(DATA / "diagnoses.toml")}
    own = {rule.name: rule for rule in _rules(site)} if site else {}
    return tuple({**own, **{name: rule for name, rule in ours.items() if name not in own}}.values())


def fill(sentence: str, values: Mapping[str, str]) -> str:
    """The sentence with `{name}` replaced; `{name|words}` becomes the words where there is no such value."""

    def one(place: re.Match[str]) -> str:
        return values.get(place[1]) or (place[2] if place[2] is not None else "?")

    return " ".join(_PLACE.sub(one, sentence).split())


def _rules(path: Path) -> Iterator[Rule]:
    for name, entry in read_toml(path).items():
        if not isinstance(entry, dict):
            raise _wrong(path, name, "", "a rule is a table: [disk-full]")
        yield _rule(path, name, entry)


def _rule(path: Path, name: str, entry: Mapping[str, Any]) -> Rule:
    for key in entry:
        if key not in _KEYS:
            meant = nearness.slip_of(key, _KEYS)
            raise _wrong(
                path, name, key, f"did you mean `{meant}`?" if meant else f"known are {', '.join(_KEYS)}"
            )
    where = _listed(path, name, entry, "where", get_args(Where))
    also = _listed(path, name, entry, "also", get_args(Also)) if "also" in entry else ()
    patterns = tuple(_pattern(path, name, text) for text in _texts(path, name, entry, "patterns"))
    symptom, first_only = (_yes_or_no(path, name, entry, key) for key in ("symptom", "first_only"))
    sentences = {key: _sentence(path, name, entry, key, patterns) for key in ("meaning", "cure")}
    samples = _texts(path, name, entry, "samples")
    for sample in samples:
        if not any(pattern.search(line) for pattern in patterns for line in sample.splitlines()):
            raise _wrong(path, name, "samples", f"no pattern is found in `{sample.strip()[:60]}`")
    return Rule(
        name,
        cast("tuple[Where, ...]", where),
        patterns,
        sentences["meaning"],
        sentences["cure"],
        samples,
        symptom,
        symptom or first_only,
        cast("tuple[Also, ...]", also),
    )


def _texts(path: Path, rule: str, entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts, at least one; a single text is a list of one."""
    value = entry.get(key)
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed or not all(isinstance(text, str) for text in listed):
        raise _wrong(path, rule, key, f"it is a list of texts, at least one: {key} = ['…']")
    return tuple(listed)


def _yes_or_no(path: Path, rule: str, entry: Mapping[str, Any], key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise _wrong(path, rule, key, "it is true or false")
    return value


def _listed(
    path: Path, rule: str, entry: Mapping[str, Any], key: str, known: tuple[str, ...]
) -> tuple[str, ...]:
    values = _texts(path, rule, entry, key)
    for value in values:
        if value not in known:
            raise _wrong(path, rule, key, f"`{value}` is none of {', '.join(known)}")
    return values


def _pattern(path: Path, rule: str, text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise _wrong(path, rule, "patterns", f"`{text}` is no regular expression: {error}") from None
    if pattern.search(""):
        raise _wrong(path, rule, "patterns", f"`{text}` is found in every line")
    return pattern


def _sentence(
    path: Path, rule: str, entry: Mapping[str, Any], key: str, patterns: tuple[re.Pattern[str], ...]
) -> str:
    """A sentence in which every place can be filled, whichever of the patterns is found."""
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(path, rule, key, "it is a sentence in quotes")
    for place in _PLACE.finditer(value):
        name = place[1]
        groups = [name in _groups(pattern) for pattern in patterns]
        if not any(groups) and name not in GIVEN:
            raise _wrong(path, rule, key, f"no pattern has a group `(?P<{name}>…)`")
        if not all(groups) and name not in _ALWAYS and place[2] is None:
            raise _wrong(
                path, rule, key, f"say what stands for `{name}` where it is not known: {{{name}|words}}"
            )
    return " ".join(value.split())


def _groups(pattern: re.Pattern[str]) -> set[str]:
    """The names that the pattern can give."""
    return {"port" if name == GLOO_PORT else name for name in pattern.groupindex}


def _wrong(path: Path, rule: str, key: str, hint: str) -> InputError:
    place = f"{rule}.{key}" if key else rule
    return InputError(
        f"{path}: {place} cannot be used: {hint}", "docs/diagnose.md shows how a rule is written"
    )
