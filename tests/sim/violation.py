"""The simulator's exception."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant does not hold, or a required event does not happen."""
