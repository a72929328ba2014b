"""The gRPC method Work: one stream on which a worker gets messages and settles them.

The client opens the stream with a queue, and grants *credit*: the number of messages that it is
ready to take. The node delivers within the credit and never beyond. The client acks, nacks and
extends on the stream, as often and in as large portions as it likes; each Settle is confirmed with
the client's own tag; acks of one lease that arrive together are one request to the engine. Credit
is not returned by an ack: the client grants more when it wants more.

| state   | event                        | next    | action                                        |
|---------|------------------------------|---------|-----------------------------------------------|
| new     | a request with `open`        | idle    |                                               |
| idle    | credit                       | popping | pop up to the credit, and wait for messages   |
| popping | messages                     | sending | take the credit, send page by page            |
| sending | the client has read them     | popping | or idle, if the credit is used up             |
| popping | a message to be sent alone   | alone   | give it back if others are outstanding        |
| sending | it was a message alone       | alone   |                                               |
| alone   | nothing is outstanding       | popping | a crash of the worker names its message       |
| any     | Settle                       | same    | settle, then confirm                          |
| any     | the client ends its side     | closed  | confirm what is under way; return messages    |
| any     | the client leaves            | closed  | end the leases; return messages               |
| any     | a wrong request, or the pop  | closed  | return messages; the status of the error      |
|         | is refused                   |         |                                               |
| any     | the node drains              | closed  | confirm; the client keeps what it has         |

What becomes of messages that are not settled when the stream closes:

| the message                | the client ends its side,   | the client leaves        | drain     |
|                            | or is refused               | (killed, cut, cancelled) |           |
|----------------------------|-----------------------------|--------------------------|-----------|
| was popped, and not sent   | returns uncounted           | returns uncounted        | returns   |
| was sent, with `prefetch`, | returns uncounted           | returns uncounted        | stays     |
| and not reported as handed |                             |                          | leased    |
| was sent                   | returns, counted as a nack  | returns as from an       | stays     |
|                            |                             | expired lease, counted   | leased    |

A client that leaves may have crashed on one of its messages, so its leases are shortened to the
minimum and expire: the engine counts the delivery and marks the messages as suspects. After a drain
the leases move with their partitions, and the client settles with the unary methods of any node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from weft import limits
from weft.errors import InvalidArgument, ShuttingDown, UsageError, WeftError, from_code
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from . import grpc_receipts
from .delivery import Delivery, MessageColumns, WorkLotColumns
from .grpc_method import Asked, parse
from .grpc_pop import answer_bytes
from .grpc_receipts import Grouped
from .grpc_settle import Settlement, SettleResult, ack_of, extend_of, nack_of
from .outstanding_messages import OutstandingMessages
from .proto_fields import FieldStarts, varint
from .stream_call import CallCancelled, StreamCall

LIMIT_DEFAULT: Final = 1000
#: Unused credit of a stream: as many messages as one pop can lease.
CREDIT_MAX: Final = limits.POP_COUNT_MAX
#: Settles under way in one stream; past this number the stream stops reading.
SETTLES_MAX: Final = 64
#: Bytes of responses that wait for a client that does not read; past it the stream stops reading.
UNSENT_BYTES_MAX: Final = limits.MIB
#: The reason of the nack for messages that a client leaves unsettled when it ends its side.
ENDED_REASON: Final = "the worker's stream ended"
#: A Settle that acks one message: its tag, and the lease and the index in its receipt.
_plain_ack: Final = re.compile(
    rb"(?:\x10[\x80-\xff]*[\x00-\x7f])?\x1a\x14(.{18})(..)", re.DOTALL
).fullmatch
_CONFIRMATION: Final = FieldStarts(pb.WorkResponse.CONFIRMATIONS_FIELD_NUMBER)
_TAG: Final = bytes([pb.Confirmation.TAG_FIELD_NUMBER << 3])
_DONE: Final = bytes([pb.Confirmation.DONE_FIELD_NUMBER << 3, 1])


async def work(call: StreamCall) -> None:
    first = parse(await call.receive() or b"", pb.WorkRequest)
    if not first.HasField("open"):
        raise InvalidArgument("the first request of a stream opens it: set open, with the queue")
    stream = WorkStream(call, first.open)
    try:
        stream.handle(first)
        stream.advance()
        while not stream.is_done:
            await call.wait(stream.alarm(), idle=stream.is_idle)
            stream.advance()
        stream.return_messages()
    except CallCancelled:
        stream.end_leases()
        raise
    except ShuttingDown:
        # The posted page leaves before the status of the call, so the client may receive the page.
        stream.give_back_unsent(posted_is_sent=True)
        raise
    except WeftError:
        stream.return_messages()
        raise
    finally:
        stream.outstanding.close()


class WorkStream:
    def __init__(self, call: StreamCall, opened: pb.WorkOpen) -> None:
        self.outstanding = OutstandingMessages(
            call.services.holders, call, handed=not opened.prefetch
        )
        self._call = call
        self._queue = opened.queue
        self._lease_ms = opened.lease_ms
        self._bytes_max = answer_bytes(opened.max_bytes)
        self._limit = opened.limit or LIMIT_DEFAULT
        self._shape = WorkLotColumns if opened.columns else MessageColumns
        self._prefetch = opened.prefetch
        self._credit = 0
        self._popping = False
        self._delivery: Delivery | None = None
        #: Nothing is popped until nothing is outstanding.
        self._alone = False
        self._settles = 0
        #: As fields of a response.
        self._confirmations: list[bytes] = []
        self._error: WeftError | None = None

    @property
    def is_idle(self) -> bool:
        return not self._settles

    @property
    def is_done(self) -> bool:
        """The client has ended its side, and every Settle is confirmed."""
        return self._call.ended and not self._settles and not self._confirmations

    def alarm(self) -> float | None:
        return self.outstanding.first_expiry() if self._alone else None

    # --- requests of the client ---------------------------------------------------------------

    def advance(self) -> None:
        """Does all that can be done now; raises the error of a refused pop."""
        if self._error is not None:
            raise self._error
        while self._settles < SETTLES_MAX and self._call.unsent < UNSENT_BYTES_MAX:
            message = self._call.take()
            if message is None:
                break
            request = parse(message, pb.WorkRequest)
            if request.HasField("open"):
                raise InvalidArgument("only the first request of a stream has open")
            self.handle(request)
        if self._confirmations:
            self._call.post(b"".join(self._confirmations))
            self._confirmations = []
        if not self._call.unsent:
            self._deliver()

    def handle(self, request: pb.WorkRequest) -> None:
        acks: list[pb.Settle] = []
        indexes: list[int] = []
        lease = b""
        for settle in request.settles:
            plain = _plain_ack(settle.SerializeToString())
            if plain is None or plain[1] != lease:
                self._ack(acks, lease, indexes)
                acks, indexes, lease = [], [], b""
            if plain is None:
                self._settle(settle)
            else:
                acks.append(settle)
                indexes.append(int.from_bytes(plain[2], "big"))
                lease = plain[1]
        self._ack(acks, lease, indexes)
        if self._credit + request.credit > CREDIT_MAX:
            raise InvalidArgument(
                f"a stream has at most {CREDIT_MAX} unused credit, and {request.credit} more would "
                f"be {self._credit + request.credit}: grant credit for messages that were delivered"
            )
        self._credit += request.credit

    # --- delivery -----------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Sends the next page; pops when all pages are sent."""
        if self._delivery is not None:
            self._delivery.page_sent()
            if page := self._delivery.page(self._bytes_max):
                self._call.post(page)
                return
            self._delivery = None
        if self._alone:
            self.outstanding.expire()
            if self.outstanding.count:
                return
            self._alone = False
        if self._credit and not self._popping and not self._call.ended:
            self._popping = True
            pop = wire.Pop(
                self._queue, min(self._credit, self._limit), limits.WAIT_MS_MAX, self._lease_ms,
                prefetch=self._prefetch,
            )  # fmt: skip
            self._call.submit(pop, (), partial(self._popped, pop))

    def _popped(self, pop: wire.Pop, answer: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
        self._popping = False
        if isinstance(answer, wire.Failure):
            self._error = from_code(answer.code, answer.message)
            return
        assert isinstance(answer, wire.Popped)
        self.outstanding.expire()
        self._alone = any(one.alone for one in answer.lent)
        if self._alone and self.outstanding.count:
            # A crash on one of the other messages would also count against this one.
            self._call.services.give_back(pop, answer)
        elif answer.lent:
            self._credit -= sum(one.count for one in answer.lent)
            self.outstanding.add(answer.lent)
            self._delivery = Delivery(answer.lent, frames, self._shape)

    # --- settles ------------------------------------------------------------------------------

    def _ack(self, acks: list[pb.Settle], packed: bytes, indexes: list[int]) -> None:
        """Acks messages of one lease, each named by a Settle of its own, with one request if all of
        them are outstanding: then each of them is acked once, and none before."""
        if len(acks) > 1 and len(set(indexes)) == len(indexes):
            lease, _ = grpc_receipts.unpack(packed + bytes(2))
            if self.outstanding.holds(lease, indexes):
                grouped = Grouped({lease: indexes})
                self._settles += len(acks)
                tags = [settle.tag for settle in acks]
                self._submit(tags, ack_of(grouped, self._queue).ask())
                return
        for settle in acks:
            self._settle(settle)

    def _settle(self, settle: pb.Settle) -> None:
        try:
            settlement = self._settlement(settle, Grouped.of(settle.receipts, settle.lots))
        except UsageError as error:
            self._refuse(settle.tag, error)
            return
        self._settles += 1
        self._submit([settle.tag], settlement.ask())

    def _settlement(self, settle: pb.Settle, grouped: Grouped) -> Settlement:
        match settle.action:
            case pb.Settle.ACK:
                return ack_of(grouped, self._queue)
            case pb.Settle.NACK:
                return nack_of(grouped, self._queue, settle)
            case pb.Settle.EXTEND:
                return extend_of(grouped, self._queue, settle.lease_ms, handed=settle.handed)
        raise InvalidArgument(f"no action of Settle has the number {settle.action}")

    def _submit(self, tags: Sequence[int], asked: Asked) -> None:
        self._call.submit(asked.request, (), partial(self._settled, tags, asked))

    def _settled(
        self, tags: Sequence[int], asked: Asked, answer: wire.AnyAnswer, frames: Sequence[bytes]
    ) -> None:
        settlement: Settlement = asked.kept
        if isinstance(answer, wire.Failure):
            self._settles -= len(tags)
            for tag in tags:
                self._refuse(tag, from_code(answer.code, answer.message))
            return
        assert isinstance(answer, wire.Settled)
        result = settlement.reply(self._call.services, answer)
        if isinstance(result, Asked):
            try:
                self._submit(tags, result)
            except WeftError as error:  # the token was revoked between the two requests
                self._error = error
            return
        self._settles -= len(tags)
        if len(tags) == 1:
            self._confirm(_confirmation(tags[0], settlement.grouped, result))
        elif result.done == len(tags):
            fields = [_TAG + varint(tag) + _DONE for tag in tags]
            self._confirmations += map(_CONFIRMATION.field, fields)
        else:
            for confirmation in _confirmations(tags, settlement.grouped, result):
                self._confirm(confirmation)

    def _confirm(self, confirmation: pb.Confirmation) -> None:
        self._confirmations.append(_CONFIRMATION.field(confirmation.SerializeToString()))

    def _refuse(self, tag: int, error: WeftError) -> None:
        refusal = pb.Refusal(code=error.code, message=error.message, retriable=error.retriable)
        self._confirm(pb.Confirmation(tag=tag, refusal=refusal))

    # --- the end ------------------------------------------------------------------------------

    def give_back_unsent(self, *, posted_is_sent: bool = False) -> None:
        if self._delivery is not None:
            if posted_is_sent or not self._call.unsent:
                self._delivery.page_sent()
            unsent = self._delivery.unsent()
            self.outstanding.remove(unsent)
            self._call.services.give_back_receipts(self._queue, unsent)

    def return_messages(self) -> None:
        """The client is done: what it has not settled goes back now."""
        self.give_back_unsent()
        services = self._call.services
        services.give_back_receipts(self._queue, self.outstanding.receipts(handed=False))
        if handed := self.outstanding.receipts(handed=True):
            services.send_off(wire.Nack(self._queue, handed, reason=ENDED_REASON))

    def end_leases(self) -> None:
        """The client is gone, perhaps by a crash: the leases of what it has expire at once."""
        self.give_back_unsent()
        services = self._call.services
        services.give_back_receipts(self._queue, self.outstanding.receipts(handed=False))
        if handed := self.outstanding.receipts(handed=True):
            services.send_off(wire.Extend(self._queue, handed, limits.LEASE_MS_MIN))


def _confirmation(tag: int, grouped: Grouped, result: SettleResult) -> pb.Confirmation:
    confirmation = pb.Confirmation(
        tag=tag,
        done=result.done,
        already=result.already,
        lost_receipts=grouped.malformed,
        lost_lots=grouped.malformed_lots,
    )
    if result.lost:  # seldom: only then the messages are looked at one by one
        in_lots = {(lot.lease, index) for lot in grouped.lots for index in lot.indexes}
        lost = [message for message in result.lost if message not in in_lots]
        confirmation.lost_receipts.extend(grpc_receipts.pack(*each) for each in lost)
        confirmation.lost_lots.extend(grouped.parts(result.lost))
    return confirmation


def _confirmations(
    tags: Sequence[int], grouped: Grouped, result: SettleResult
) -> Iterator[pb.Confirmation]:
    """The result of an ack of several messages, by message. Messages that another node acked at the
    same time are only counted: which ones they were makes no difference, so they are the last."""
    ((lease, indexes),) = grouped.leases.items()
    lost = {index for _, index in result.lost}
    done = result.done
    for tag, index in zip(tags, indexes, strict=True):
        if index in lost:
            yield pb.Confirmation(tag=tag, lost_receipts=[grpc_receipts.pack(lease, index)])
        elif done:
            done -= 1
            yield pb.Confirmation(tag=tag, done=1)
        else:
            yield pb.Confirmation(tag=tag, already=1)
