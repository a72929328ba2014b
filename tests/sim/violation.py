"""What the simulator finds."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant does not hold, or something that must happen does not."""
