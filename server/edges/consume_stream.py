"""The gRPC method Consume: pops for as long as the call lasts, within the client's prefetch.

``prefetch`` bounds the messages that a slow consumer can hold (``outstanding_messages``). A message
that may have killed workers before is sent alone at its last delivery: nothing else is outstanding
at the same time. What was sent stays with the client when the call ends, until its lease expires.
"""

from __future__ import annotations

from weft import limits
from weft.errors import ShuttingDown
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from .delivery import Delivery, MessageColumns
from .grpc_method import parse
from .grpc_pop import answer_bytes
from .outstanding_messages import OutstandingMessages
from .stream_call import StreamCall

CONSUME_LIMIT_DEFAULT = 100
CONSUME_PREFETCH_DEFAULT = 1000


async def consume(call: StreamCall) -> None:
    message = await call.receive()
    request = parse(message or b"", pb.ConsumeRequest)
    prefetch = request.prefetch or CONSUME_PREFETCH_DEFAULT
    limits.check_range("prefetch", prefetch, 1, limits.POP_COUNT_MAX)
    stream = ConsumeStream(call, request, prefetch, answer_bytes(request.max_bytes))
    try:
        while True:
            await stream.pop()
    finally:
        stream.outstanding.close()


class ConsumeStream:
    def __init__(
        self, call: StreamCall, request: pb.ConsumeRequest, prefetch: int, bytes_max: int
    ) -> None:
        self.outstanding = OutstandingMessages(call.services.holders, call)
        self._call = call
        self._queue = request.queue
        self._limit = request.limit or CONSUME_LIMIT_DEFAULT
        self._lease_ms = request.lease_ms
        self._prefetch = prefetch
        self._bytes_max = bytes_max

    async def pop(self) -> None:
        """Pops once, and sends the messages."""
        call, outstanding = self._call, self.outstanding
        await self._wait_below(self._prefetch)
        limit = min(self._limit, self._prefetch - outstanding.count)
        asked = wire.Pop(self._queue, limit, limits.WAIT_MS_MAX, self._lease_ms)
        answer, frames = await call.ask(asked, (), wire.Popped)
        alone = any(one.alone for one in answer.lent)
        if alone and outstanding.count:
            # A crash on one of the other messages would also count against this one.
            call.services.give_back(asked, answer)
            await self._wait_below(1)
            return
        outstanding.add(answer.lent)
        await self._send(Delivery(answer.lent, frames, MessageColumns))
        if alone:
            await self._wait_below(1)

    async def _send(self, delivery: Delivery) -> None:
        try:
            while page := delivery.page(self._bytes_max):
                await self._call.send(page)
                delivery.page_sent()
        except ShuttingDown:
            # The posted page leaves before the status of the call, so the client may receive it.
            delivery.page_sent()
            raise
        finally:
            # The client left before it received these messages, or cannot receive them, or the
            # node drains.
            self._call.services.give_back_receipts(self._queue, delivery.unsent())

    async def _wait_below(self, count: int) -> None:
        """Waits until fewer messages than `count` are outstanding."""
        self.outstanding.expire()
        while self.outstanding.count >= count:
            await self._call.wait(self.outstanding.first_expiry(), idle=True)
            self.outstanding.expire()
