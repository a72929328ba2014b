"""A reservation as its reader sees it: slices, which any process may read, and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import msgspec

from weft.errors import ProtocolError
from weft.ids import MessageId
from weft.proto import streams, wire


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
    is the slice's number of messages, there is no more."""

    bodies: list[bytes]
    #: None for a message without headers; the whole column is None when no message has any.
    headers: list[dict[str, str] | None] | None
    keys: list[str | None] | None
    ids: list[MessageId]
    timestamps_ms: list[int]
    #: How often each was delivered, with this time. A reservation itself does not count.
    deliveries: list[int]
    start: int

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
    headers: list[dict[str, str] | None] = []
    keys: list[str | None] = []
    ids: list[MessageId] = []
    timestamps: list[int] = []
    deliveries: list[int] = []
    has_headers = has_keys = False
    for one, frame in zip(lent, frames, strict=True):
        try:
            columns = wire.decode_payload(frame)
        except (msgspec.MsgspecError, *wire.MALFORMED) as error:
            raise ProtocolError(f"the node sent messages that cannot be read: {error}") from None
        count = len(columns.bodies)
        if count != one.count:
            raise ProtocolError(f"the node said {one.count} messages and sent {count}")
        bodies += columns.bodies
        headers += columns.headers if columns.headers is not None else repeat(None, count)
        keys += columns.keys if columns.keys is not None else repeat(None, count)
        has_headers = has_headers or columns.headers is not None
        has_keys = has_keys or columns.keys is not None
        first = int(MessageId.of(one.partition, one.producer, one.batch, one.first))
        ids.extend(map(MessageId, range(first, first + count)))
        timestamps.extend(repeat(one.pushed_ms, count))
        deliveries.extend(repeat(one.deliveries, count))
    return ReservedBatch(
        bodies, headers if has_headers else None, keys if has_keys else None, ids, timestamps,
        deliveries, start,
    )  # fmt: skip
