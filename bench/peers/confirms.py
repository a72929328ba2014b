"""Publisher confirms: the server may confirm out of order, or many with one answer."""

from __future__ import annotations


class Confirms:
    """The confirmed messages: all up to `low`, and some after `low`."""

    def __init__(self) -> None:
        self.low = 0
        self._early: set[int] = set()

    def take(self, tag: int, *, multiple: bool) -> None:
        if multiple:
            self.low = max(self.low, tag)
            self._early = {other for other in self._early if other > tag}
        else:
            self._early.add(tag)
        while self.low + 1 in self._early:
            self.low += 1
            self._early.remove(self.low)
