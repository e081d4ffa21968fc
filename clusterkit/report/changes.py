"""What would be changed on the hosts and what would be taken back, as people read it before they agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clusterkit.report import checks
from clusterkit.report.checks import Line
from clusterkit.report.folding import fold
from clusterkit.reset import Undoing
from clusterkit.steps import Verdict
from clusterkit.steps.engine import in_words, key_in_words


def plan_lines(verdicts: Iterable[Verdict], *, commands: bool) -> list[str]:
    """What would be changed, step by step, and why; hosts with the same change folded."""
    pending = [each for each in verdicts if each.status == "pending"]
    lines = []
    for hosts, each in checks.folded(pending, lambda each: _same(each, commands)):
        lines.append(f"{fold(hosts)}: {each.name}: {'; '.join(each.differences)}")
        if each.message:
            lines.append(f"    because {each.message}")
        if commands:
            lines += shell_lines(each.fix)
    return lines


def exceptions(verdicts: Sequence[Verdict], *, diff: bool, commands: bool) -> list[Line]:
    """As `checks.exceptions`, and under each what is and what should be.

    What would be changed is said in any case, the rest with `diff`; `commands` are those of pending changes.
    """
    lines: list[Line] = []
    for hosts, each in checks.folded(checks.wrong(verdicts), lambda each: _seen(each, diff, commands)):
        lines.append((checks.headline(hosts, each), checks.COLOURS.get(each.status)))
        lines += checks.hint(each)
        if each.status == "pending":
            lines.append((f"    would change {'; '.join(each.differences)}", None))
            lines += [(line, None) for line in (shell_lines(each.fix) if commands else ())]
        elif diff:
            lines += [(f"    {text}", None) for text in _as_it_is(each)]
    return lines


def undo_lines(undoing: Undoing) -> list[str]:
    """What would be taken back: the commands of each step, hosts with the same ones folded."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for host in undoing.hosts:
        for name, lines in undoing.lines[host].items():
            groups.setdefault((name, tuple(lines)), []).append(host)
    shown = []
    for (name, lines), hosts in groups.items():
        shown.append(f"{fold(hosts)}: {name}")
        shown += shell_lines(lines)
    return shown


def shell_lines(commands: Iterable[str]) -> list[str]:
    """Commands as they are run, set off."""
    return [f"    {line}" for text in commands for line in text.splitlines()]


def _as_it_is(verdict: Verdict) -> list[str]:
    """`KEY: ACTUAL, should be DESIRED`: nothing of it is about to be changed; what was has been told."""
    if verdict.status == "changed":
        return []
    return [
        f"{key_in_words(key)}: {in_words(verdict.actual.get(key))}, "
        f"should be {in_words(verdict.desired.get(key))}"
        for key in verdict.changed_keys
    ]


def _same(verdict: Verdict, commands: bool) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    return verdict.name, verdict.message, verdict.differences, verdict.fix if commands else ()


def _seen(verdict: Verdict, diff: bool, commands: bool) -> tuple[object, ...]:
    """What has to be equal for two hosts to share their lines."""
    compared = diff or verdict.status == "pending"
    shown = verdict.differences if compared and verdict.status != "changed" else ()
    fix = verdict.fix if commands else ()
    return verdict.status, verdict.name, verdict.message, verdict.hint, shown, fix
