"""Hold the rules against everything that a run left behind, and put what fits into order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clusterkit.diagnosis.rules import Rule, Where
from clusterkit.diagnosis.text import windows

# A line of evidence is for reading.
_SHOWN = 400


@dataclass(frozen=True)
class Source:
    """Lines of one place, and whose they are. `nearness`: 0 is of what failed first, more is further away."""

    where: Where
    host: str
    lines: Sequence[str]
    process: int | None = None
    nearness: int = 0


@dataclass(frozen=True)
class Match:
    """A rule that fits, with the last line in which it was found there, and how many there were."""

    rule: Rule
    source: Source
    line: str
    values: Mapping[str, str]
    position: int
    count: int = 1


def find(rules: Sequence[Rule], source: Source) -> list[Match]:
    """Each rule that fits somewhere in the source, once."""
    wanted = [rule for rule in rules if source.where in rule.where]
    found: dict[str, Match] = {}
    for position, line in enumerate(source.lines):
        for rule, values, piece in _matching(wanted, line):
            before = found.get(rule.name)
            count = before.count + 1 if before else 1
            found[rule.name] = Match(rule, source, piece, values, position, count)
    return list(found.values())


def _matching(rules: Sequence[Rule], line: str) -> Iterable[tuple[Rule, dict[str, str], str]]:
    for rule in rules:
        for piece in windows(line):
            hit = next((hit for pattern in rule.patterns if (hit := pattern.search(piece))), None)
            if hit:
                begin = max(0, hit.start() - _SHOWN // 2) if hit.end() > _SHOWN else 0
                values = {name: value for name, value in hit.groupdict().items() if value}
                yield rule, values, piece[begin : begin + _SHOWN].strip()
                break


def ordered(matches: Iterable[Match]) -> list[Match]:
    """What explains the failure best comes first, each rule once.

    Causes come before symptoms; then what is nearest to the first failure; then what was said last there.
    Symptoms are left out where a cause is known.
    """
    best: dict[str, Match] = {}
    for match in sorted(matches, key=_rank):
        best.setdefault(match.rule.name, match)
    found = list(best.values())
    causes = [match for match in found if not match.rule.symptom]
    return causes or found


def _rank(match: Match) -> tuple[bool, int, int]:
    return match.rule.symptom, match.source.nearness, -match.position


def as_symptom(match: Match) -> Match:
    """The match of a rule that is a cause in general, but not here."""
    return replace(match, rule=replace(match.rule, symptom=True))
