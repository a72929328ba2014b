"""Answers that wait until the partitions they rest on are committed.

The engine does not wait for commits: a pop may lease messages pushed in the same round. So an
answer names the partitions that it rests on, and is sent when all of them are committed up to the
ends of their logs at the time of the answer. A lease changes nothing in the log: an answer with
leased messages is sent when the other members of its partitions confirm that this node still leads
(``dht/leadership_check.py``). A confirmation of partition `p` is stored under `~p`, with tickets in
place of lsns. If this node stops leading one of the partitions, the outcome is unknown: the caller
is told to retry, and messages leased by a pop are given back. The rule holds for every one of the
partitions until the answer is sent: a partition may have been confirmed long ago, and have another
primary by the time the last one is confirmed.

A confirmation is true of the moment of the request. A node that was frozen since, or that receives
the confirmation late, may have been replaced. So an answer with a request older than the suspicion
timeout is not sent; the node repeats the request for all partitions of the answer. (Where
everything is so slow, the answer is sent in the end: each repetition doubles the limit.) A second
delivery becomes rare, but not impossible: an answer may also be late on the network. Then the
receipts in the late answer are refused.
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
        self.missing = missing  # partitions not committed yet; 0: the slot is done
        self.ask_at = ask_at
        self.patience = patience


class CommitWait:
    def __init__(self, patience: int) -> None:
        #: Validity of a confirmation in microseconds, from the request on.
        self._patience = patience
        self._waiting: dict[int, deque[tuple[int, _Slot]]] = {}
        #: No confirmation expires before this time.
        self.ask_at = _NEVER

    def add(self, answered: Answered, needs: dict[int, int], now: int, patience: int = 0) -> None:
        """`needs`: for each partition the lsn to be committed (for ~partition: the ticket to be
        confirmed)."""
        patience = patience or self._patience
        ask_at = now + patience if min(needs) < 0 else _NEVER
        if ask_at < self.ask_at:
            self.ask_at = ask_at
        slot = _Slot(answered, len(needs), ask_at, patience)
        for partition, lsn in needs.items():
            self._waiting.setdefault(partition, deque()).append((lsn, slot))

    def old(self, now: int) -> list[tuple[Answered, int]]:
        """Removes the answers with expired confirmations. Returns each with the validity of its
        next confirmation, to be added again."""
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
        """Removes the answers to be sent when a partition is committed up to `lsn`."""
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
        """Removes the answers that rest on a lost partition: their outcome is unknown for good."""
        failed: list[Answered] = []
        for waiting in self._waiting.values():
            for _, slot in waiting:
                if slot.missing and partition in slot.answered.rests_on:
                    slot.missing = 0
                    failed.append(slot.answered)
        for gone in (partition, ~partition):
            self._waiting.pop(gone, None)
        return failed
