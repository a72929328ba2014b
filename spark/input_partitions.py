"""Splits the reservations of a micro-batch into one share for each Spark task.

All messages of the batch form one sequence, ordered by reservation and slice. The sequence is cut
into pieces of equal length; a cut may split a slice. The offset of a message derives from its
position in the sequence, so the offset is the same for every reader and every read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyspark.sql.datasource import InputPartition

#: Messages and bytes that justify one more task.
TASK_MESSAGES: Final = 500_000
TASK_BYTES: Final = 128 * 1024 * 1024
#: Limit on the tasks of a batch unless `minPartitions` requires more.
TASKS_MAX: Final = 64
#: The offset of a message: the number of its reservation, then its position in the reservation.
PLACE_BITS: Final = 32


class ReservedOffsets(Protocol):
    """A reservation as described by the client."""

    @property
    def number(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def slices(self) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages `start` to `stop - 1` of one slice of a reservation."""

    number: int
    slice: Any
    start: int
    stop: int
    #: The offset of the slice's first message.
    base: int


class Share(InputPartition):
    """The pieces that one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)

    @property
    def messages(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)


def tasks(messages: int, size: int, at_least: int) -> int:
    """Returns the number of tasks for `messages` messages of `size` bytes in total."""
    worth = max(-(-messages // TASK_MESSAGES), -(-size // TASK_BYTES))
    return min(max(min(worth, TASKS_MAX), at_least), messages)


def shares(reservations: Iterable[ReservedOffsets], at_least: int) -> list[Share]:
    reserved = list(reservations)
    messages = sum(each.messages for each in reserved)
    count = tasks(messages, sum(each.bytes for each in reserved), at_least)
    line = list(_line(reserved))
    return [
        Share(list(_cut(line, messages * k // count, messages * (k + 1) // count)))
        for k in range(count)
    ]


def _line(reserved: Iterable[ReservedOffsets]) -> Iterator[Piece]:
    for each in reserved:
        place = each.number << PLACE_BITS
        for part in each.slices:
            yield Piece(each.number, part, 0, part.messages, place)
            place += part.messages


def _cut(line: Sequence[Piece], start: int, stop: int) -> Iterator[Piece]:
    """Yields the pieces between two positions of the sequence."""
    place = 0
    for piece in line:
        low, high = max(start, place), min(stop, place + piece.stop)
        if low < high:
            yield Piece(piece.number, piece.slice, low - place, high - place, piece.base)
        place += piece.stop
