"""A reservation as its reader sees it: slices, which any process may read, and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TypeVar

import msgspec

from weft.errors import ProtocolError
from weft.ids import MessageId
from weft.proto import streams, wire

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slice:
    """The messages of a reservation on one partition, oldest first. Plain numbers: it may be
    pickled and read by another process, through any node."""

    partition: int
    messages: int
    bytes: int
    #: (id, messages) of what holds them on the partition.
    holds: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    number: int
    messages: int
    bytes: int
    #: When its oldest message was pushed, in milliseconds since 1970.
    oldest_ms: int
    slices: tuple[Slice, ...]

    @classmethod
    def of(cls, said: streams.Reservation) -> Reservation:
        slices = tuple(
            Slice(one.partition, one.messages, one.bytes, tuple(map(tuple, one.holds)))  # type: ignore[arg-type]
            for one in said.slices
        )
        return cls(said.number, said.messages, said.bytes, said.oldest_ms, slices)


@dataclass(frozen=True, slots=True)
class ReservedBatch:
    """Messages of a slice by column, all of one length. The next read begins at `end`; when that
    is the slice's number of messages, there is no more.

    What messages of one stored batch have in common is told by `runs`; the columns made of them
    cost a step for each message, so they are made when they are asked for.
    """

    bodies: list[bytes]
    #: None for a message without headers; the whole column is None when no message has any.
    headers: list[dict[str, str] | None] | None
    keys: list[str | None] | None
    #: Consecutive messages of one stored batch each, in the order of the columns.
    runs: list[wire.Lent]
    start: int

    @property
    def ids(self) -> list[MessageId]:
        ids: list[MessageId] = []
        for run in self.runs:
            first = int(MessageId.of(run.partition, run.producer, run.batch, run.first))
            ids.extend(map(MessageId, range(first, first + run.count)))
        return ids

    @property
    def timestamps_ms(self) -> list[int]:
        return [stamp for run in self.runs for stamp in repeat(run.pushed_ms, run.count)]

    @property
    def deliveries(self) -> list[int]:
        """How often each was delivered, with this time. A reservation itself does not count."""
        return [times for run in self.runs for times in repeat(run.deliveries, run.count)]

    @property
    def end(self) -> int:
        return self.start + len(self.bodies)

    def __len__(self) -> int:
        return len(self.bodies)


def unpack(lent: Sequence[wire.Lent], frames: Sequence[bytes], start: int) -> ReservedBatch:
    """The columns of an answer; a column that no range has is left out."""
    if len(lent) != len(frames):
        raise ProtocolError(f"the node sent {len(lent)} ranges in {len(frames)} frames")
    bodies: list[bytes] = []
    headers: list[dict[str, str] | None] | None = None
    keys: list[str | None] | None = None
    for one, frame in zip(lent, frames, strict=True):
        try:
            columns = wire.decode_payload(frame)
        except (msgspec.MsgspecError, *wire.MALFORMED) as error:
            raise ProtocolError(f"the node sent messages that cannot be read: {error}") from None
        if len(columns.bodies) != one.count:
            raise ProtocolError(
                f"the node said {one.count} messages and sent {len(columns.bodies)}"
            )
        headers = _extended(headers, len(bodies), columns.headers, one.count)
        keys = _extended(keys, len(bodies), columns.keys, one.count)
        bodies += columns.bodies
    return ReservedBatch(bodies, headers, keys, list(lent), start)


def _extended(
    column: list[T | None] | None, before: int, more: list[T | None] | None, count: int
) -> list[T | None] | None:
    """A column is made when the first range has it, and is filled up where others have not."""
    if more is None:
        if column is not None:
            column.extend(repeat(None, count))
        return column
    if column is None:
        column = [None] * before
    column += more
    return column
