"""Measured numbers for people (pure)."""

from __future__ import annotations


def figures(value: float, digits: int) -> str:
    """The number with so many digits that mean something, and never as `1e+02`."""
    return f"{float(f'{value:.{digits}g}'):.12g}"
