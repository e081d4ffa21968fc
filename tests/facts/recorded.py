"""Recorded probe output (tests/cases/probes/PROBE/CASE.json), and facts made from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusterkit import steps
from clusterkit.facts import Clock, Facts, Output, interpret
from clusterkit.probes import LAUNCH

CASES = Path(__file__).parent.parent / "cases" / "probes"
PROBES = {probe.name: probe for probe in (*LAUNCH, *steps.probes(steps.ALL))}

# An ordinary GPU host: the case that a test gets for a probe it does not name; `usual` for what is not here.
USUAL = {
    "host": "debian12",
    "environment": "plain",
    "network": "one-training-network",
    "name": "own-address",
    "listening": "sshd",
    "kernel": "gpu-server",
    "disk": "local-ext4",
    "python": "paddle-gpu",
    "gpus": "eight-h100",
    "runs": "none",
}


def load(probe: str, case: str) -> dict[str, Any]:
    """The case file as it is."""
    loaded: dict[str, Any] = json.loads((CASES / probe / f"{case}.json").read_text())
    return loaded


def output(probe: str, case: str) -> Output:
    """What the probe printed."""
    if case == "usual" and not (CASES / probe / "usual.json").exists():
        return Output(1, "", f"tests/cases/probes/{probe}/usual.json is missing")
    recorded = load(probe, case)
    return Output(recorded["status"], _text(recorded["stdout"]), _text(recorded.get("stderr", "")))


def facts(alias: str, clock: Clock | None = None, /, **cases: str | Output) -> Facts:
    """Facts of one host from a recorded case, or an Output, for each probe; USUAL for what is not named."""
    outputs = {
        probe: case if isinstance(case, Output) else output(probe, case)
        for probe, case in {**dict.fromkeys(PROBES, "usual"), **USUAL, **cases}.items()
    }
    return Facts(alias, interpret(alias, outputs, tuple(PROBES.values())), clock or Clock(0.0, 0.001))


def plain(value: Any) -> Any:
    """The value as JSON would have it; a frozen set becomes a sorted list."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [plain(part) for part in value] if isinstance(value, (tuple, list)) else value


def _text(recorded: str | list[str]) -> str:
    """Text, or its lines."""
    return recorded if isinstance(recorded, str) else "".join(f"{line}\n" for line in recorded)
