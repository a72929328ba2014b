"""Batch numbers by partition, for pushes that shall be on the partition of their commit.

A batch goes where the hash of its name, (producer, number), says. A push of a commit takes a number
that leads to the commit's home, so the commit has no effect elsewhere: it is decided and complete
with one log entry. Numbers that lead elsewhere are kept for later commits, so each number is hashed
once and, with homes spread over the partitions, few are drawn in vain.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from weft.ids import partitions_of

if TYPE_CHECKING:
    from weft.client.routing.session import ClientSession

#: Numbers kept for each partition, and numbers drawn at once.
KEPT_MAX: Final = 64
DRAWN: Final = 256


class HomeNumbers:
    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._kept: dict[int, list[int]] = {}

    def take(self, home: int) -> int:
        """A new batch number that leads to the home. Threads may call it at once."""
        while True:
            try:
                return self._kept[home].pop()
            except (KeyError, IndexError):
                self._draw()

    def _draw(self) -> None:
        session, kept = self._session, self._kept
        numbers = list(islice(session.batches, DRAWN))
        places = partitions_of(session.producer, numbers, session.router.partitions)
        for place, number in zip(places, numbers, strict=True):
            found = kept.get(place)
            if found is None:
                kept[place] = [number]
            elif len(found) < KEPT_MAX:
                found.append(number)
