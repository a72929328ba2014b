"""The gRPC method Produce: a stream of pushes, and a stream of their receipts in the same order.

Each request of the client is one push with a receipt or a refusal of its own. Several pushes are
under way at once, up to a bound; past the bound the stream stops reading, and gRPC's flow control
holds the client back. A push that is refused does not stop those after it.

Single messages that arrive together are stored as one batch, where no answer changes: to one queue,
with one delay and priority, without a name of the client's and without a dedup key. If the node
refuses the merged push, nothing of it is stored, and the messages are pushed one by one, so that
each has its own refusal. An error that leaves open whether the push was stored is the answer for
all of them: pushing again could store a message twice.

| state   | event                                     | next    | action                          |
|---------|-------------------------------------------|---------|---------------------------------|
| open    | requests of the client                    | open    | push, up to the bounds          |
| open    | a bound is reached                        | held    | take no request                 |
| held    | answers arrive, or receipts are read      | open    | send receipts, in order         |
| open,   | the client ends its side                  | ending  | push what was taken             |
| held    | a malformed request, a token that is      | failing | take no request                 |
|         | unknown, the node drains                  |         |                                 |
| ending  | the last receipt is sent                  | closed  | status OK                       |
| failing | the last receipt is sent                  | closed  | the status of the error         |
| any     | the client leaves                         | closed  | what was taken may be stored    |

A request without a receipt when the stream ends may or may not be stored: a client that names its
pushes (`producer`, `batch`) can send it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from weft import limits
from weft.errors import (
    Busy,
    InvalidArgument,
    Refused,
    ShuttingDown,
    Unauthenticated,
    UsageError,
    WeftError,
    from_code,
)
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from .grpc_method import parse
from .grpc_push import first_id, payload_of, payload_of_columns, push_request
from .proto_fields import INDEX_DIGITS, FieldStarts, id_start, with_bytes
from .stream_call import StreamCall

#: Pushes under way in one stream: enough to fill every round of the node, and few enough that a
#: client learns of a full queue soon.
PUSHES_MAX: Final = 64
#: Their bytes: two of the largest batches.
PUSHES_BYTES_MAX: Final = 2 * limits.BATCH_BYTES_MAX
#: Bytes of receipts that wait for a client that does not read.
UNSENT_BYTES_MAX: Final = limits.MIB
#: One merged push: small beside the largest batch, so that merging never makes one too large.
MERGED_BYTES_MAX: Final = limits.MIB

_RAW_REQUEST: Final = with_bytes(pb.ProduceRequest, "message", "messages")
_RECEIPTS: Final = FieldStarts(pb.ProduceResponse.RECEIPTS_FIELD_NUMBER)
#: Errors that prove that nothing was stored.
_NOT_STORED: Final = (UsageError, Refused, Busy)


async def produce(call: StreamCall) -> None:
    stream = ProduceStream(call)
    while True:
        stream.take()
        stream.send_receipts()
        if stream.is_done:
            break
        await call.wait(idle=stream.is_idle)
    if stream.error is not None:
        raise stream.error


class _Push:
    """One push under way: its requests are answered together."""

    __slots__ = ("messages", "missing", "receipts")

    def __init__(self, messages: list[bytes]) -> None:
        #: The serialized single messages that were merged; none for a batch or a named message.
        self.messages = messages
        #: The fields `receipts` of a ProduceResponse: one for all requests, or one for each.
        self.receipts: list[bytes] = [b""]
        self.missing = 1


class ProduceStream:
    def __init__(self, call: StreamCall) -> None:
        self.error: WeftError | None = None
        self._call = call
        self._queue = ""
        #: The pushes whose receipts are not sent yet, in the order of the requests.
        self._pushes: deque[_Push] = deque()
        self._under_way = 0
        self._bytes = 0

    @property
    def is_done(self) -> bool:
        return not self._pushes and (self.error is not None or self._call.ended)

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    # --- requests -----------------------------------------------------------------------------

    def take(self) -> None:
        """Pushes what the client has sent, up to the bounds."""
        if self._call.services.gate.closed and not self._call.ended and self.error is None:
            self.error = ShuttingDown(
                "this node is stopping: send the requests without a receipt to another node"
            )
        try:
            self._take()
        except InvalidArgument as error:
            self.error = error  # raised when the receipts before are sent

    def _take(self) -> None:
        merged: Any = None
        messages: list[bytes] = []
        size = 0
        while self.error is None and self._has_room and (raw := self._call.take()) is not None:
            request = self._parsed(raw)
            if _is_single(request):
                message = request.message
                full = len(messages) == limits.BATCH_COUNT_MAX or size > MERGED_BYTES_MAX
                if messages and (full or not _fit_together(merged, request)):
                    self._push(merged, messages)
                    messages, size = [], 0
                merged = request
                messages.append(message)
                size += len(message)
                continue
            if messages:
                self._push(merged, messages)
                messages, size = [], 0
            self._push(request, [])
        if messages:
            self._push(merged, messages)

    @property
    def _has_room(self) -> bool:
        return (
            self._under_way < PUSHES_MAX
            and self._bytes < PUSHES_BYTES_MAX
            and self._call.unsent < UNSENT_BYTES_MAX
        )

    def _parsed(self, raw: bytes) -> Any:
        request = parse(raw, _RAW_REQUEST)
        if not request.WhichOneof("content"):
            raise InvalidArgument("a ProduceRequest has a message, or messages: set one of them")
        self._queue = request.queue = request.queue or self._queue
        return request

    def _push(self, request: Any, messages: list[bytes]) -> None:
        """Pushes merged single messages, or the batch or the named message of one request."""
        push = _Push(messages)
        try:
            if messages:
                payload, count = payload_of(messages), len(messages)
            elif request.WhichOneof("content") == "message":
                payload, count = payload_of([request.message]), 1
            else:
                columns = parse(request.messages, pb.Columns)
                payload, count = payload_of_columns(columns), len(columns.bodies)
            asked = push_request(request, count, self._call.services.names(request.queue))
        except InvalidArgument as error:
            if len(messages) > 1:
                for message in messages:
                    self._push(request, [message])
                return
            self._pushes.append(push)
            self._refuse(push, 0, error)
            return
        self._pushes.append(push)
        self._submit(push, 0, asked, payload)

    def _submit(self, push: _Push, place: int, asked: wire.Push, payload: bytes) -> None:
        on_answer = partial(self._answered, push, place, asked, len(payload))
        self._under_way += 1
        self._bytes += len(payload)
        try:
            self._call.submit(asked, (payload,), on_answer)
        except Refused as error:
            on_answer(wire.Failure(error.code, error.message, error.retriable), ())
            if isinstance(error, Unauthenticated):
                self.error = error  # no request of this stream has a chance any more

    # --- answers ------------------------------------------------------------------------------

    def _answered(
        self, push: _Push, place: int, asked: wire.Push, size: int, answer: wire.AnyAnswer,
        frames: Sequence[bytes],
    ) -> None:  # fmt: skip
        self._under_way -= 1
        self._bytes -= size
        if isinstance(answer, wire.Failure):
            error = from_code(answer.code, answer.message)
            merged = len(push.receipts) == 1 and len(push.messages) > 1
            if merged and isinstance(error, _NOT_STORED):
                self._push_one_by_one(push, asked)
            else:
                self._refuse(push, place, error)
            return
        assert isinstance(answer, wire.Pushed)
        fields = _receipts(answer) if push.messages else _receipt(answer)
        self._fill(push, place, fields)

    def _push_one_by_one(self, push: _Push, merged: wire.Push) -> None:
        push.missing = len(push.messages)
        push.receipts = [b""] * push.missing
        for place, message in enumerate(push.messages):
            producer, batch = next(self._call.services.names(merged.queue))
            one = msgspec.structs.replace(merged, producer=producer, batch=batch, count=1)
            self._submit(push, place, one, payload_of([message]))

    def _refuse(self, push: _Push, place: int, error: WeftError) -> None:
        refusal = pb.Refusal(code=error.code, message=error.message, retriable=error.retriable)
        field = _RECEIPTS.field(pb.ProduceReceipt(refusal=refusal).SerializeToString())
        whole = len(push.receipts) == 1
        self._fill(push, place, field * max(1, len(push.messages)) if whole else field)

    def _fill(self, push: _Push, place: int, fields: bytes) -> None:
        push.receipts[place] = fields
        push.missing -= 1

    def send_receipts(self) -> None:
        """Sends the receipts that are complete, up to the first push that is under way."""
        ready: list[bytes] = []
        while self._pushes and not self._pushes[0].missing:
            ready += self._pushes.popleft().receipts
        if ready:
            self._call.post(b"".join(ready))


def _is_single(request: Any) -> bool:
    """True if the request is a single message that may be stored with others in one batch."""
    return (
        request.WhichOneof("content") == "message"
        and not request.HasField("producer")
        and not request.HasField("batch")
        and not request.HasField("dedup_key")
        and not request.HasField("group")
    )


def _fit_together(one: Any, other: Any) -> bool:
    return bool(
        one.queue == other.queue
        and one.delay_ms == other.delay_ms
        and one.priority == other.priority
    )


def _receipt(answer: wire.Pushed) -> bytes:
    """The receipt of a batch."""
    return _RECEIPTS.field(
        pb.ProduceReceipt(
            first_id=first_id(answer),
            count=answer.count,
            duplicate=answer.duplicate,
            durability=answer.durability,
        ).SerializeToString()
    )


def _receipts(answer: wire.Pushed) -> bytes:
    """The receipts of merged messages: only the last digits of the ids differ."""
    tail = pb.ProduceReceipt(
        count=1, duplicate=answer.duplicate, durability=answer.durability
    ).SerializeToString()
    shared = id_start(answer.partition, answer.producer, answer.batch)
    start = _RECEIPTS[len(shared) + 4 + len(tail)] + shared
    return b"".join([start + digits + tail for digits in INDEX_DIGITS[: answer.count]])
