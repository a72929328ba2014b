"""Who reads what: the reservations of a micro-batch, cut into one share for each Spark task.

All messages of the batch are laid out in one line, reservation by reservation, slice by slice, and
the line is cut into pieces of equal length. A cut may go through a slice. The place in the line is
also what a message's offset is made of, so that it is the same whoever reads it, however often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyspark.sql.datasource import InputPartition

#: Messages and bytes that make one more task worth its start.
TASK_MESSAGES: Final = 100_000
TASK_BYTES: Final = 32 * 1024 * 1024
#: Tasks that a batch is cut into without being asked for more.
TASKS_MAX: Final = 64
#: A message's offset: its reservation's number, then its place in it.
PLACE_BITS: Final = 32


class Reserved(Protocol):
    """A reservation as the client describes it."""

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
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)

    @property
    def messages(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)


def tasks(messages: int, size: int, at_least: int) -> int:
    """How many shares so many messages of so many bytes in all are worth."""
    worth = max(-(-messages // TASK_MESSAGES), -(-size // TASK_BYTES))
    return min(max(min(worth, TASKS_MAX), at_least), messages)


def shares(reservations: Iterable[Reserved], at_least: int) -> list[Share]:
    reserved = list(reservations)
    messages = sum(each.messages for each in reserved)
    count = tasks(messages, sum(each.bytes for each in reserved), at_least)
    line = list(_line(reserved))
    return [
        Share(list(_cut(line, messages * k // count, messages * (k + 1) // count)))
        for k in range(count)
    ]


def _line(reserved: Iterable[Reserved]) -> Iterator[Piece]:
    for each in reserved:
        place = each.number << PLACE_BITS
        for part in each.slices:
            yield Piece(each.number, part, 0, part.messages, place)
            place += part.messages


def _cut(line: Sequence[Piece], start: int, stop: int) -> Iterator[Piece]:
    """What lies between two places of the line."""
    place = 0
    for piece in line:
        low, high = max(start, place), min(stop, place + piece.stop)
        if low < high:
            yield Piece(piece.number, piece.slice, low - place, high - place, piece.base)
        place += piece.stop
