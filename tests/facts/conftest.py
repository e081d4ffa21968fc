"""Fixtures of the fact tests."""

from tests.facts.shells import shell

__all__ = ["shell"]
