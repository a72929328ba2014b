"""Leased messages on their way to a client, in responses that the client can receive.

A pop's answer has one payload per lease: bodies, headers and keys by column. `MessageColumns` is
one of these as a column of proto `Message`s, `LotColumns` as a proto `Lot`; both write any range of
their messages into the field 1 of a response, and know its size before. Python handles columns, not
messages: the fields of all messages are joined in one step.

A `Delivery` fills responses up to the client's limit. It has a cursor behind the last message that
was sent: messages beyond the cursor were never seen by the client, and can go back uncounted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final

from weft.errors import TooLarge
from weft.ids import MessageId
from weft.proto import dead_letter, wire
from weft.proto import weft_pb2 as pb

from . import grpc_receipts
from .grpc_receipts import LeaseKey, lease_key
from .proto_fields import INDEX_BYTES, INDEX_DIGITS, FieldStarts, id_start

#: The starts of the fields of messages and lots.
_BODY: Final = FieldStarts(pb.Message.BODY_FIELD_NUMBER, leave_out_empty=True)
_LOT_BODY: Final = FieldStarts(pb.Columns.BODIES_FIELD_NUMBER)
_LOT_HEADERS: Final = FieldStarts(pb.Columns.HEADERS_FIELD_NUMBER)
_LOT_KEY: Final = FieldStarts(pb.Columns.KEYS_FIELD_NUMBER)
_LOT_MESSAGES: Final = FieldStarts(pb.Lot.MESSAGES_FIELD_NUMBER)
#: The tag and the length of a receipt in a Message.
_RECEIPT_START: Final = b"\x2a\x14"
#: The start of a field with the longest length that a response can have.
_START_BYTES_MAX: Final = 5
#: Remembered ends of messages: those of the queues in use, and of the last moments.
_TAILS_MAX: Final = 1024


class LeasedColumns(ABC):
    """The messages of one lease."""

    #: The start of the field of a response that holds a message or a lot.
    in_response = FieldStarts(1)
    #: The bytes of a range in a response beside its messages.
    overhead = 0
    #: A bound of the size of all messages in a response, without a look at each.
    bytes_max: int

    def __init__(self, lent: wire.Lent, frame: bytes) -> None:
        batch = wire.decode_payload(frame)
        assert len(batch.bodies) == lent.count, "a payload holds just the messages of its range"
        self.lent = lent
        self.bodies = batch.bodies
        self.headers = batch.headers
        self.keys = batch.keys

    @abstractmethod
    def write(self, start: int, stop: int) -> bytes:
        """The messages `start` to `stop` - 1 as fields of a response."""

    @abstractmethod
    def sizes(self) -> Iterable[int]:
        """The size of each message in a response."""

    @cached_property
    def ends(self) -> list[int]:
        """`ends[i]` is the size of messages 0 to i in a response."""
        return list(accumulate(self.sizes()))

    @property
    def lease(self) -> LeaseKey:
        return lease_key(self.lent)

    def id_of(self, place: int) -> MessageId:
        lent = self.lent
        return MessageId.of(lent.partition, lent.producer, lent.batch, lent.first + place)

    def receipt(self, start: int) -> wire.Receipt:
        """The engine's receipt for the messages from `start` on."""
        return wire.Receipt(
            *self.lease, [(self.lent.first + start, self.lent.count - start)] if start else []
        )


class MessageColumns(LeasedColumns):
    """One proto `Message` per message; without a receipt if the messages are only shown."""

    def __init__(self, lent: wire.Lent, frame: bytes) -> None:
        super().__init__(lent, frame)
        self._id = id_start(lent.partition, lent.producer, lent.batch)
        self._tail = _tail(
            lent.deliveries, lent.lease_ms, lent.priority, lent.reason, lent.origin, lent.due_ms,
            lent.group,
        ) + _pushed(lent.pushed_ms)  # fmt: skip
        self._receipt = b""
        if lent.nonce:
            self._receipt = _RECEIPT_START + grpc_receipts.pack(self.lease, 0)[:-2]
        fixed = len(self._id) + 4 + len(self._tail) + (len(self._receipt) + 2) * bool(lent.nonce)
        self._body_starts = _starts(_BODY, self.bodies)
        self._extras = self._headers_and_keys()
        sizes = list(map(len, self.bodies))
        if len(set(sizes)) == 1:
            inner = [fixed + len(self._body_starts[0]) + sizes[0]] * len(sizes)
        else:
            starts = map(len, self._body_starts)
            inner = [fixed + start + size for start, size in zip(starts, sizes, strict=True)]
        if self._extras:
            inner = [size + len(extra) for size, extra in zip(inner, self._extras, strict=True)]
        self._inner = inner
        self.bytes_max = sum(inner) + lent.count * _START_BYTES_MAX

    def sizes(self) -> Iterable[int]:
        return [size + len(self.in_response[size]) for size in self._inner]

    def write(self, start: int, stop: int) -> bytes:
        count, first = stop - start, self.lent.first + start
        columns: list[Iterable[bytes]] = [
            map(self.in_response.__getitem__, self._inner[start:stop]),
            [self._id] * count,
            INDEX_DIGITS[first : first + count],
            self._body_starts[start:stop],
            self.bodies[start:stop],
        ]
        if self._extras:
            columns.append(self._extras[start:stop])
        if self._receipt:
            columns += [[self._receipt] * count, INDEX_BYTES[first : first + count]]
        columns.append([self._tail] * count)
        return _interleaved(columns, count)

    def _headers_and_keys(self) -> list[bytes] | None:
        if self.headers is None and self.keys is None:
            return None
        nothing: list[None] = [None] * self.lent.count
        return [
            pb.Message(headers=headers, key=key).SerializeToString()
            for headers, key in zip(self.headers or nothing, self.keys or nothing, strict=True)
        ]


class LotColumns(LeasedColumns):
    """One proto `Lot` for each range that is written."""

    def __init__(self, lent: wire.Lent, frame: bytes) -> None:
        super().__init__(lent, frame)
        self._headers = self._keys = None
        self.overhead = len(self._facts(0, lent.count)) + 2 * _START_BYTES_MAX
        # A body takes its msgpack mark of at least two bytes in the frame, and its tag and length
        # in the response.
        self.bytes_max = self.overhead + len(frame) + lent.count * (_START_BYTES_MAX - 2)
        if self.headers is not None:
            self._headers = [
                _LOT_HEADERS.field(pb.Headers(values=each).SerializeToString())
                for each in self.headers
            ]
            self.bytes_max += sum(map(len, self._headers))
        if self.keys is not None:
            self._keys = [_LOT_KEY.field((key or "").encode()) for key in self.keys]
            self.bytes_max += sum(map(len, self._keys))

    def sizes(self) -> Iterable[int]:
        sizes = [len(_LOT_BODY[len(body)]) + len(body) for body in self.bodies]
        for column in (self._headers, self._keys):
            if column is not None:
                sizes = list(map(int.__add__, sizes, map(len, column)))
        return sizes

    def write(self, start: int, stop: int) -> bytes:
        bodies = self.bodies[start:stop]
        columns = _interleaved([_starts(_LOT_BODY, bodies), bodies], stop - start)
        for column in (self._headers, self._keys):
            if column is not None:
                columns += b"".join(column[start:stop])
        return self.in_response.field(self._facts(start, stop) + _LOT_MESSAGES.field(columns))

    def _facts(self, start: int, stop: int) -> bytes:
        lent = self.lent
        return pb.Lot(
            receipt=grpc_receipts.pack_lot(self.lease, lent.first + start, stop - start),
            first_id=str(self.id_of(start)),
            deliveries=lent.deliveries,
            pushed_ms=lent.pushed_ms,
            lease_ms=lent.lease_ms,
            priority=lent.priority,
            dead_reason=lent.reason,
            dead_origin=lent.origin,
            dead_deliveries=dead_letter.deliveries_of(lent.reason),
            due_ms=lent.due_ms,
            group=lent.group,
        ).SerializeToString()


class WorkLotColumns(LotColumns):
    """Lots in a WorkResponse, which has them beside messages."""

    in_response = FieldStarts(pb.WorkResponse.LOTS_FIELD_NUMBER)


@lru_cache(maxsize=_TAILS_MAX)
def _tail(
    deliveries: int, lease_ms: int, priority: int, reason: str, origin: str, due_ms: int,
    group: str | None,
) -> bytes:  # fmt: skip
    """The fields that mostly are equal for all messages of a queue."""
    return pb.Message(
        deliveries=deliveries,
        lease_ms=lease_ms,
        priority=priority,
        dead_reason=reason,
        dead_origin=origin,
        dead_deliveries=dead_letter.deliveries_of(reason),
        due_ms=due_ms,
        group=group,
    ).SerializeToString()


@lru_cache(maxsize=_TAILS_MAX)
def _pushed(pushed_ms: int) -> bytes:
    return pb.Message(pushed_ms=pushed_ms).SerializeToString()


def _starts(starts: FieldStarts, values: list[bytes]) -> list[bytes]:
    """The start of the field of each value. Bodies mostly have one length."""
    if len(values) == 1:
        return [starts[len(values[0])]]
    lengths = set(map(len, values))
    if len(lengths) == 1:
        return [starts[lengths.pop()]] * len(values)
    return [starts[len(value)] for value in values]


def _interleaved(columns: Sequence[Iterable[bytes]], count: int) -> bytes:
    """The first value of each column, then the second of each, and so on, joined."""
    if count == 1:
        return b"".join([value for column in columns for value in column])
    width = len(columns)
    parts = [b""] * (width * count)
    for place, column in enumerate(columns):
        parts[place::width] = column
    return b"".join(parts)


def single(lent: wire.Lent, frame: bytes, bytes_max: int) -> bytes | None:
    """The response with one message, as `MessageColumns` writes it; None for a message with headers
    or a key, and for one that may not fit into `bytes_max`."""
    batch = wire.decode_payload(frame)
    if batch.headers is not None or batch.keys is not None:
        return None
    (body,) = batch.bodies
    message = b"".join((
        id_start(lent.partition, lent.producer, lent.batch), INDEX_DIGITS[lent.first],
        _BODY[len(body)], body,
        _RECEIPT_START, grpc_receipts.pack((lent.partition, lent.lsn, lent.nonce), lent.first),
        _tail(
            lent.deliveries, lent.lease_ms, lent.priority, lent.reason, lent.origin, lent.due_ms,
            lent.group,
        ),
        _pushed(lent.pushed_ms),
    ))  # fmt: skip
    if len(message) + _START_BYTES_MAX > bytes_max:
        return None
    return LeasedColumns.in_response[len(message)] + message


class Delivery:
    """Messages of a pop (or peek), page by page; a page is the bytes of one response."""

    def __init__(
        self,
        lent: Sequence[wire.Lent],
        frames: Sequence[bytes],
        shape: type[LeasedColumns],
    ) -> None:
        self._columns = [shape(one, frame) for one, frame in zip(lent, frames, strict=True)]
        #: (lease, message) behind the last message sent, and behind the page in between.
        self._cursor = self._next = (0, 0)

    def whole(self, bytes_max: int) -> bytes | None:
        """All messages as one response, if they surely fit. Instead of pages."""
        if sum([column.bytes_max for column in self._columns]) > bytes_max:
            return None
        return b"".join([column.write(0, column.lent.count) for column in self._columns])

    def page(self, bytes_max: int) -> bytes:
        """The next response, of at most `bytes_max` bytes; b"" after the last message.

        Raises TooLarge if the next message does not fit a response of its own. A page that is not
        marked as sent comes again.
        """
        lease, place = self._cursor
        room = bytes_max
        parts: list[bytes] = []
        while lease < len(self._columns):
            column = self._columns[lease]
            if not place and column.bytes_max <= room:
                parts.append(column.write(0, column.lent.count))
                room -= len(parts[-1])
                lease += 1
                continue
            before = column.ends[place - 1] if place else 0
            stop = bisect_right(column.ends, before + room - column.overhead, place)
            if stop == place:
                if not parts:
                    size = column.overhead + column.ends[place] - before
                    raise _too_large(column.id_of(place), size, bytes_max)
                break
            parts.append(column.write(place, stop))
            room -= column.overhead + column.ends[stop - 1] - before
            lease, place = (lease, stop) if stop < len(column.ends) else (lease + 1, 0)
        self._next = lease, place
        return b"".join(parts)

    def page_sent(self) -> None:
        self._cursor = self._next

    def unsent(self) -> list[wire.Receipt]:
        """The receipts of the messages that were not sent."""
        lease, place = self._cursor
        rest = self._columns[lease:]
        return [column.receipt(0 if at else place) for at, column in enumerate(rest)]


def _too_large(name: MessageId, size: int, bytes_max: int) -> TooLarge:
    return TooLarge(
        f"the message {name} takes {size} bytes in an answer, more than max_bytes "
        f"{bytes_max}: raise the receive limit of the gRPC channel "
        f"(max_receive_message_length) and ask with max_bytes of at least {size}"
    )
