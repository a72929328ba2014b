"""The services of ``weft.proto``: each call turns shapes, asks the engine, and turns them back.

Every method is entered in the book of calls, enters through the gate and leaves an error as a gRPC
status with Weft's own code, so the methods themselves only say what is particular to their verb.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator

import grpc

from weft import ids, limits
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc, wire

from . import receipts, translate
from .async_ask import AsyncAsk
from .calls import Calls
from .gate import Gate
from .grpc_call import Base, Context, call
from .receipts import Grouped
from .stream import Streams

CONSUME_LIMIT_DEFAULT = 100
CONSUME_PREFETCH_DEFAULT = 1000
#: What a client accepts that was not told otherwise: gRPC's own limit in all languages. Past it
#: a client drops the answer unread, and its messages would be lent to nobody.
ANSWER_BYTES_MAX = 4 * limits.MIB
#: What an answer needs to reach the client before the client's own clock ends the call.
DEADLINE_MARGIN_MS = 100


class QueueService(Base, weft_pb2_grpc.QueueServicer):
    def __init__(self, gate: Gate, asking: AsyncAsk, calls: Calls) -> None:
        super().__init__(gate, asking, calls)
        self._streams = Streams()
        self._drawn = _draw()

    @call
    async def CreateQueue(
        self, request: pb.CreateQueueRequest, context: Context
    ) -> pb.CreateQueueResponse:
        answer = await self.ask(translate.create_queue(request), wire.Created)
        return pb.CreateQueueResponse(created=answer.created)

    @call
    async def UpdateQueue(
        self, request: pb.UpdateQueueRequest, context: Context
    ) -> pb.UpdateQueueResponse:
        await self.ask(translate.update_queue(request), wire.Done)
        return pb.UpdateQueueResponse()

    @call
    async def DeleteQueue(
        self, request: pb.DeleteQueueRequest, context: Context
    ) -> pb.DeleteQueueResponse:
        answer = await self.ask(wire.DeleteQueue(request.queue), wire.Done)
        return pb.DeleteQueueResponse(messages=answer.count)

    @call
    async def ListQueues(
        self, request: pb.ListQueuesRequest, context: Context
    ) -> pb.ListQueuesResponse:
        answer = await self.ask(translate.list_queues(request), wire.Queues)
        queues = [translate.queue_description(info) for info in answer.queues]
        return pb.ListQueuesResponse(queues=queues, more=answer.more)

    @call
    async def DescribeQueue(
        self, request: pb.DescribeQueueRequest, context: Context
    ) -> pb.QueueDescription:
        answer = await self.ask(wire.DescribeQueue(request.queue), wire.Queues)
        return translate.queue_description(answer.queues[0])

    @call
    async def PurgeQueue(
        self, request: pb.PurgeQueueRequest, context: Context
    ) -> pb.PurgeQueueResponse:
        answer = await self.ask(wire.PurgeQueue(request.queue), wire.Done)
        return pb.PurgeQueueResponse(messages=answer.count)

    @call
    async def Redrive(self, request: pb.RedriveRequest, context: Context) -> pb.RedriveResponse:
        answer = await self.ask(wire.Redrive(request.queue, request.limit), wire.Done)
        return pb.RedriveResponse(messages=answer.count)

    @call
    async def Push(self, request: pb.PushRequest, context: Context) -> pb.PushResponse:
        asked, payload = translate.push(request, self._drawn)
        answer, _ = await self.asking.exchange(asked, [payload], wire.Pushed)
        return translate.pushed(answer)

    @call
    async def Pop(self, request: pb.PopRequest, context: Context) -> pb.PopResponse:
        asked = translate.pop(request, _wait_ms(request.wait_ms, context.time_remaining()))
        answer, frames = await self.asking.exchange(asked, (), wire.Popped)
        page, *rest = self._pages(answer.lent, frames) or [[]]
        left = Grouped.of([message.receipt for messages in rest for message in messages])
        self.asking.give_back_receipts(request.queue, left.receipts())
        return pb.PopResponse(messages=page)

    @call
    async def Peek(self, request: pb.PeekRequest, context: Context) -> pb.PeekResponse:
        answer, frames = await self.asking.exchange(translate.peek(request), (), wire.Peeked)
        page, *_ = self._pages(answer.lent, frames) or [[]]
        return pb.PeekResponse(messages=page)

    @call
    async def Ack(self, request: pb.AckRequest, context: Context) -> pb.SettleResponse:
        grouped = Grouped.of(request.receipts)
        answer = await self._settle(grouped, lambda slips: wire.Ack(request.queue, slips))
        self._streams.settle(grouped)
        return answer

    @call
    async def Nack(self, request: pb.NackRequest, context: Context) -> pb.SettleResponse:
        grouped = Grouped.of(request.receipts)
        answer = await self._settle(
            grouped,
            lambda slips: wire.Nack(request.queue, slips, request.delay_ms, request.reason),
        )
        self._streams.settle(grouped)
        return answer

    @call
    async def Extend(self, request: pb.ExtendRequest, context: Context) -> pb.SettleResponse:
        grouped = Grouped.of(request.receipts)
        answer = await self._settle(
            grouped, lambda slips: wire.Extend(request.queue, slips, request.lease_ms)
        )
        self._streams.extend(grouped, request.lease_ms)
        self._streams.settle(Grouped.of(answer.lost))
        return answer

    @call
    async def Consume(self, request: pb.ConsumeRequest, context: Context) -> None:
        limit = request.limit or CONSUME_LIMIT_DEFAULT
        prefetch = request.prefetch or CONSUME_PREFETCH_DEFAULT
        limits.check_range("prefetch", prefetch, 1, limits.POP_COUNT_MAX)
        with self._streams.open(prefetch) as stream:
            while True:
                room = await stream.room(self.gate)
                asked = wire.Pop(
                    request.queue, min(limit, room), limits.WAIT_MS_MAX, request.lease_ms
                )
                answer, frames = await self.asking.exchange(asked, (), wire.Popped)
                stream.lend(answer.lent)
                await self._send(asked.queue, self._pages(answer.lent, frames), context)

    @call
    async def Snapshot(self, request: pb.SnapshotRequest, context: Context) -> pb.SnapshotResponse:
        return translate.snapped(await self.ask(translate.snapshot(request), wire.Snapped))

    @call
    async def Restore(self, request: pb.RestoreRequest, context: Context) -> pb.RestoreResponse:
        answer = await self.ask(translate.restore(request), wire.Pushed)
        return pb.RestoreResponse(duplicate=answer.duplicate)

    async def _send(self, queue: str, pages: list[list[pb.Message]], context: Context) -> None:
        for number, page in enumerate(pages):
            try:
                await context.write(pb.PopResponse(messages=page))
            except (asyncio.CancelledError, grpc.aio.InternalError) as error:
                # The client left before it could take these; the earlier ones are its own. When it
                # left in the middle of a write, gRPC says so in another way.
                left = [message.receipt for page in pages[number:] for message in page]
                self.asking.give_back_receipts(queue, Grouped.of(left).receipts())
                raise asyncio.CancelledError from error

    def _pages(self, lent: Iterable[wire.Lent], frames: Iterable[bytes]) -> list[list[pb.Message]]:
        return list(translate.pages(translate.messages(lent, frames), ANSWER_BYTES_MAX))

    async def _settle(
        self, grouped: Grouped, make: Callable[[list[wire.Receipt]], wire.AnyRequest]
    ) -> pb.SettleResponse:
        first = await self.ask(make(grouped.receipts()), wire.Settled)
        done, lost = first.done, grouped.messages(first.lost)
        if len(lost) > len(first.lost):
            # Of a lease with several messages perhaps only some are lost. Asked one by one, those
            # that were settled just now say so again, and the rest is what is lost.
            single = [wire.Receipt(*lease, [(index, 1)]) for lease, index in lost]
            second = await self.ask(make(single), wire.Settled)
            lost = [lost[position] for position in second.lost]
            done = min(done + second.done, grouped.count() - len(lost))
        return pb.SettleResponse(
            done=done,
            already=grouped.count() - len(lost) - done,
            lost=[receipts.pack(*message) for message in lost] + grouped.malformed,
        )


class TableService(Base, weft_pb2_grpc.TableServicer):
    @call
    async def Insert(self, request: pb.InsertRequest, context: Context) -> pb.InsertResponse:
        await self.ask(wire.Insert(request.key, request.value), wire.Done)
        return pb.InsertResponse()

    @call
    async def Lookup(self, request: pb.LookupRequest, context: Context) -> pb.LookupResponse:
        answer = await self.ask(wire.Lookup(request.key), wire.Value)
        return pb.LookupResponse(value=answer.value)

    @call
    async def Remove(self, request: pb.RemoveRequest, context: Context) -> pb.RemoveResponse:
        answer = await self.ask(wire.Remove(request.key), wire.Done)
        return pb.RemoveResponse(removed=bool(answer.count))

    @call
    async def Append(self, request: pb.AppendRequest, context: Context) -> pb.AppendResponse:
        answer = await self.ask(wire.Append(request.key, request.value), wire.Done)
        return pb.AppendResponse(length=answer.count)

    @call
    async def CompareAndSwap(
        self, request: pb.CompareAndSwapRequest, context: Context
    ) -> pb.CompareAndSwapResponse:
        old = request.old if request.HasField("old") else None
        new = request.new if request.HasField("new") else None
        answer = await self.ask(wire.CompareAndSwap(request.key, old, new), wire.Swapped)
        return pb.CompareAndSwapResponse(swapped=answer.swapped, current=answer.current)


class ClusterService(Base, weft_pb2_grpc.ClusterServicer):
    @call
    async def View(self, request: pb.ViewRequest, context: Context) -> pb.ViewResponse:
        return translate.view(await self.ask(wire.View(), wire.ViewInfo))

    @call
    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        return translate.status(await self.ask(wire.Status(), wire.StatusInfo))

    @call
    async def Places(self, request: pb.PlacesRequest, context: Context) -> pb.PlacesResponse:
        return translate.places(await self.ask(wire.ClusterStatus(), wire.ClusterInfo))

    @call
    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        joined = await self.ask(translate.join(request), wire.Joined)
        return pb.JoinResponse(
            cluster=joined.cluster, partitions=joined.partitions, view=joined.view
        )

    @call
    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:
        await self.ask(wire.Leave(request.node, request.force), wire.Done)
        return pb.LeaveResponse()


def _draw() -> Iterator[tuple[int, int]]:
    """(producer, batch) for pushes that name none: this edge is then their producer."""
    producer = secrets.randbits(ids.PRODUCER_BITS)
    return ((producer, batch) for batch in itertools.count(1))


def _wait_ms(wait_ms: int, remaining_s: float | None) -> int:
    """A pop's wait, cut so that an empty answer still arrives before the call's deadline."""
    if remaining_s is None or not 0 < wait_ms <= limits.WAIT_MS_MAX:
        return wait_ms
    return max(0, min(wait_ms, int(remaining_s * 1000) - DEADLINE_MARGIN_MS))
