"""Fixtures of the preflight tests."""

from tests.e2e.conftest import make_sandbox

__all__ = ["make_sandbox"]
