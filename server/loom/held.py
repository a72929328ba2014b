"""Answers that are held back until what they rest on is committed.

The engine works on without waiting: a pop may lend what a push of the same round has brought. So an
answer names the partitions it rests on, and goes out when all of them are committed up to where
their logs stood then. What a pop lends changes nothing, and goes out when the other members of its
partitions confirm that this node still leads (``dht/confirmation.py``); for that a partition `p` is
counted as `~p`, and tickets as lsns. If this node stops leading one of them, nobody can say whether
it happened: the caller is told to ask again, and what a pop had lent is given back. That holds for
every partition it rests on, until the answer is out: one may have been confirmed long ago, and be
another node's by the time the last one is.

What the others have confirmed is true of the moment at which they were asked. A node that was
frozen since, or that hears of it late, may have been replaced: so an answer whose question is older
than the time after which a silent node is suspected is not let go. Its question is put again, for
all of its partitions. (Where everything is as slow as that, the answer goes out in the end: each
time it may take twice as long.) This makes a second delivery rare, and not impossible: an answer
may be late on its way, too. Then the receipts that it brings are refused.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from weft.proto import wire
from weft.server.engine.state import Answered

UNKNOWN: Final = wire.Failure(
    "UNAVAILABLE", "another node leads this partition now: this may or may not have been done", True
)
_NEVER: Final = 1 << 62


class _Slot:
    __slots__ = ("answered", "ask_at", "missing", "patience")

    def __init__(self, answered: Answered, missing: int, ask_at: int, patience: int) -> None:
        self.answered = answered
        self.missing = missing  # partitions that are not committed yet; 0 when it is over
        self.ask_at = ask_at
        self.patience = patience


class Held:
    def __init__(self, patience: int) -> None:
        #: For so long a confirmation is good, from when it was asked for.
        self._patience = patience
        self._waiting: dict[int, deque[tuple[int, _Slot]]] = {}
        #: Not before this time is there anything to be asked again.
        self.ask_at = _NEVER

    def add(self, answered: Answered, needs: dict[int, int], now: int, patience: int = 0) -> None:
        """`needs`: for each partition the lsn that must be committed (for ~partition: the ticket
        that must be confirmed)."""
        patience = patience or self._patience
        ask_at = now + patience if min(needs) < 0 else _NEVER
        if ask_at < self.ask_at:
            self.ask_at = ask_at
        slot = _Slot(answered, len(needs), ask_at, patience)
        for partition, lsn in needs.items():
            self._waiting.setdefault(partition, deque()).append((lsn, slot))

    def old(self, now: int) -> list[tuple[Answered, int]]:
        """What must be asked for again, and how long that is good for then. It is not held any
        more, until it is added again."""
        self.ask_at = _NEVER
        found: list[tuple[Answered, int]] = []
        for waiting in self._waiting.values():
            for _, slot in waiting:
                if slot.missing and slot.ask_at <= now:
                    slot.missing = 0
                    found.append((slot.answered, 2 * slot.patience))
                elif slot.missing and slot.ask_at < self.ask_at:
                    self.ask_at = slot.ask_at
        return found

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def partitions(self) -> list[int]:
        return list(self._waiting)

    def committed(self, partition: int, lsn: int) -> list[Answered]:
        """What may go out now that a partition is committed up to `lsn`."""
        waiting = self._waiting[partition]
        free: list[Answered] = []
        while waiting and waiting[0][0] <= lsn:
            _, slot = waiting.popleft()
            if slot.missing:
                slot.missing -= 1
                if not slot.missing:
                    free.append(slot.answered)
        if not waiting:
            del self._waiting[partition]
        return free

    def lost(self, partition: int) -> list[Answered]:
        """The answers that will never be known to be true."""
        failed: list[Answered] = []
        for waiting in self._waiting.values():
            for _, slot in waiting:
                if slot.missing and partition in slot.answered.rests_on:
                    slot.missing = 0
                    failed.append(slot.answered)
        for gone in (partition, ~partition):
            self._waiting.pop(gone, None)
        return failed
