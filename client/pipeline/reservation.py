"""A reservation from the reader's side: slices, which any process may read, and their messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TypeVar

import msgspec

from weft.errors import ProtocolError
from weft.ids import MessageId
from weft.proto import pipelines, wire

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slice:
    """The messages of a reservation on one partition, oldest first.

    A slice consists of plain numbers: it may be pickled, and another process may read the messages
    through any node.
    """

    partition: int
    #: Number of messages.
    messages: int
    #: Bytes of the messages.
    bytes: int
    #: (id, messages) of the holds on the partition.
    holds: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Messages of a queue that a subscription has set aside under a number."""

    #: Consecutive in a subscription, from 1.
    number: int
    #: Number of messages.
    messages: int
    #: Bytes of the messages.
    bytes: int
    #: Push time of the oldest message, in milliseconds since 1970.
    oldest_ms: int
    #: Where the messages are: one slice for each partition.
    slices: tuple[Slice, ...]

    @classmethod
    def of(cls, said: pipelines.ReservationInfo) -> Reservation:
        slices = tuple(
            Slice(one.partition, one.messages, one.bytes, tuple(map(tuple, one.holds)))  # type: ignore[arg-type]
            for one in said.slices
        )
        return cls(said.number, said.messages, said.bytes, said.oldest_ms, slices)


@dataclass(frozen=True)
class ReservedBatch:
    """Messages of a slice by column, all columns of one length.

    The next read begins at `end`; when `end` equals the slice's number of messages, there are no
    more.

    The batch holds the data as sent by the node: `frames`, each a stored batch or a part of one,
    and `runs`, the common properties of the messages of each frame. Columns are built on demand,
    since they cost one step per message, and a reader may use the frames directly.

    Raises ProtocolError if the frames cannot be decoded.
    """

    #: For each frame, the common properties of its messages.
    runs: list[wire.Lent]
    #: The messages as the node stores them.
    frames: list[bytes]
    #: Position of the first message in the slice.
    start: int

    @property
    def bodies(self) -> list[bytes]:
        """The content of each message, as pushed."""
        return self._columns[0]

    @property
    def headers(self) -> list[dict[str, str] | None] | None:
        """None for a message without headers; the column is None if no message has any."""
        return self._columns[1]

    @property
    def keys(self) -> list[str | None] | None:
        """None for a message without a key; the column is None if no message has one."""
        return self._columns[2]

    @property
    def ids(self) -> list[MessageId]:
        """The id of each message."""
        ids: list[MessageId] = []
        for run in self.runs:
            first = int(MessageId.of(run.partition, run.producer, run.batch, run.first))
            ids.extend(map(MessageId, range(first, first + run.count)))
        return ids

    @property
    def timestamps_ms(self) -> list[int]:
        """Time of each push, in milliseconds since 1970."""
        return [stamp for run in self.runs for stamp in repeat(run.pushed_ms, run.count)]

    @property
    def deliveries(self) -> list[int]:
        """Deliveries of each message, including this one. A reservation does not count."""
        return [times for run in self.runs for times in repeat(run.deliveries, run.count)]

    @property
    def end(self) -> int:
        """Position in the slice of the message after the last one: the next `start`."""
        return self.start + len(self)

    def __len__(self) -> int:
        return sum(run.count for run in self.runs)

    def payload(self, index: int) -> wire.Payload:
        """Returns the columns of one frame."""
        try:
            columns = wire.decode_payload(self.frames[index])
        except (msgspec.MsgspecError, *wire.MALFORMED) as error:
            raise ProtocolError(f"the node sent messages that cannot be read: {error}") from None
        count = self.runs[index].count
        if len(columns.bodies) != count:
            raise ProtocolError(
                f"the node announced {count} messages and sent {len(columns.bodies)}"
            )
        return columns

    @cached_property
    def _columns(
        self,
    ) -> tuple[list[bytes], list[dict[str, str] | None] | None, list[str | None] | None]:
        parts = [self.payload(index) for index in range(len(self.frames))]
        counts = [run.count for run in self.runs]
        return (
            [body for part in parts for body in part.bodies],
            _joined([part.headers for part in parts], counts),
            _joined([part.keys for part in parts], counts),
        )


def unpack(lent: Sequence[wire.Lent], frames: Sequence[wire.Frame], start: int) -> ReservedBatch:
    if len(lent) != len(frames):
        raise ProtocolError(f"the node sent {len(lent)} ranges in {len(frames)} frames")
    # The application may keep the frames: copy them out of buffers that are reused.
    return ReservedBatch(list(lent), list(map(bytes, frames)), start)


def _joined(columns: list[list[T | None] | None], counts: list[int]) -> list[T | None] | None:
    """Joins columns; a frame without the column contributes None values."""
    if all(column is None for column in columns):
        return None
    joined: list[T | None] = []
    for column, count in zip(columns, counts, strict=True):
        joined.extend(repeat(None, count) if column is None else column)
    return joined
