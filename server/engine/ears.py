"""Ears: who has so much to listen to that it is told no more for now.

Requests of a caller that does not listen are not read. But pops that wait are there already, and
may all come true at once; and while a write is under way, pops come of which no answer can be sent
before its end. They are answered as fast as the answers are taken. What a connection is, and what
is on its way to it, only the driver knows.
"""

from __future__ import annotations

from typing import Protocol


class Ears(Protocol):
    def deaf(self, to: object) -> int | None:
        """The ear of a caller, if it is not to be told more now: several callers may share one."""
        ...

    def tell(self, to: object, size: int) -> None:
        """A pop is answered with so many bytes."""
        ...


class OpenEars:
    """Whoever asks listens."""

    def deaf(self, to: object) -> int | None:
        return None

    def tell(self, to: object, size: int) -> None:
        pass
