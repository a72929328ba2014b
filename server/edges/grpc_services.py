"""The services of ``weft.proto``: each call translates the request, asks the engine, and replies.

The decorator `call` logs every method, admits the call through the drain gate and turns an error
into a gRPC status with Weft's own code, so a method only contains the code of its verb.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence

import grpc

from weft import ids, limits
from weft.errors import TooLarge
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc, wire
from weft.server.node.async_node_api import AsyncNodeApi

from . import grpc_receipts, grpc_translation
from .call_log import CallLog
from .consume_stream import ConsumeStreams
from .drain_gate import DrainGate
from .grpc_call import Base, Context, call
from .grpc_receipts import Grouped, lease_key

CONSUME_LIMIT_DEFAULT = 100
CONSUME_PREFETCH_DEFAULT = 1000
#: The receive limit of a gRPC client with default options, in all languages. A client discards a
#: larger response unread, and its messages would stay leased without a consumer.
ANSWER_BYTES_MAX = 4 * limits.MIB
#: Time for a response to reach the client before the client's own deadline ends the call.
DEADLINE_MARGIN_MS = 100


def answer_bytes(max_bytes: int) -> int:
    """The bytes that the caller can receive in one response; 0 stands for gRPC's default."""
    if not max_bytes:
        return ANSWER_BYTES_MAX
    limits.check_range("max_bytes", max_bytes, limits.KIB, limits.GRPC_BYTES_MAX)
    return max_bytes


class QueueService(Base, weft_pb2_grpc.QueueServicer):
    def __init__(self, gate: DrainGate, asking: AsyncNodeApi, calls: CallLog) -> None:
        super().__init__(gate, asking, calls)
        self._streams = ConsumeStreams()
        self._drawn = _draw()

    @call
    async def CreateQueue(
        self, request: pb.CreateQueueRequest, context: Context
    ) -> pb.CreateQueueResponse:
        answer = await self.ask(grpc_translation.create_queue(request), wire.Created)
        return pb.CreateQueueResponse(created=answer.created)

    @call
    async def UpdateQueue(
        self, request: pb.UpdateQueueRequest, context: Context
    ) -> pb.UpdateQueueResponse:
        await self.ask(grpc_translation.update_queue(request), wire.Done)
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
        answer = await self.ask(grpc_translation.list_queues(request), wire.Queues)
        queues = [grpc_translation.queue_description(info) for info in answer.queues]
        fitting = grpc_translation.fitting(queues, ANSWER_BYTES_MAX)
        more = answer.more or fitting < len(queues)
        return pb.ListQueuesResponse(queues=queues[:fitting], more=more)

    @call
    async def DescribeQueue(
        self, request: pb.DescribeQueueRequest, context: Context
    ) -> pb.QueueDescription:
        answer = await self.ask(wire.DescribeQueue(request.queue), wire.Queues)
        return grpc_translation.queue_description(answer.queues[0])

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
        asked, payload = grpc_translation.push(request, self._drawn)
        answer, _ = await self.asking.exchange(asked, [payload], wire.Pushed)
        return grpc_translation.pushed(answer)

    @call
    async def Pop(self, request: pb.PopRequest, context: Context) -> pb.PopResponse:
        most = answer_bytes(request.max_bytes)
        asked = grpc_translation.pop(request, _wait_ms(request.wait_ms, context.time_remaining()))
        answer, frames = await self.asking.exchange(asked, (), wire.Popped)
        messages = grpc_translation.messages(answer.lent, frames)
        page: list[pb.Message] = []
        try:
            page = next(grpc_translation.pages(messages, most), [])
        finally:
            self._give_back(request.queue, messages[len(page) :])
        return pb.PopResponse(messages=page)

    @call
    async def Peek(self, request: pb.PeekRequest, context: Context) -> pb.PeekResponse:
        most = answer_bytes(request.max_bytes)
        answer, frames = await self.asking.exchange(grpc_translation.peek(request), (), wire.Peeked)
        page = next(
            grpc_translation.pages(grpc_translation.messages(answer.lent, frames), most), []
        )
        return pb.PeekResponse(messages=page)

    @call
    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        answer = await self.ask(grpc_translation.cancel(request), wire.Done)
        return pb.CancelResponse(cancelled=answer.count > 0)

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
        most = answer_bytes(request.max_bytes)
        with self._streams.open(prefetch) as stream:
            while True:
                room = await stream.room(self.gate)
                asked = wire.Pop(
                    request.queue, min(limit, room), limits.WAIT_MS_MAX, request.lease_ms
                )
                answer, frames = await self.asking.exchange(asked, (), wire.Popped)
                alone = any(one.alone for one in answer.lent)
                if alone and not stream.is_empty:
                    # A crash on one of the other messages would also count against this one.
                    left = [wire.Receipt(*lease) for lease in map(lease_key, answer.lent)]
                    self.asking.give_back_receipts(request.queue, left)
                    await stream.empty(self.gate)
                    continue
                stream.lend(answer.lent)
                messages = grpc_translation.messages(answer.lent, frames)
                await self._send(asked.queue, messages, most, context)
                if alone:
                    await stream.empty(self.gate)

    @call
    async def Snapshot(self, request: pb.SnapshotRequest, context: Context) -> pb.SnapshotResponse:
        return grpc_translation.snapped(
            await self.ask(grpc_translation.snapshot(request), wire.Snapped)
        )

    @call
    async def Restore(self, request: pb.RestoreRequest, context: Context) -> pb.RestoreResponse:
        answer = await self.ask(grpc_translation.restore(request), wire.Pushed)
        return pb.RestoreResponse(duplicate=answer.duplicate)

    async def _send(
        self, queue: str, messages: list[pb.Message], most: int, context: Context
    ) -> None:
        sent = 0
        try:
            for page in grpc_translation.pages(messages, most):
                await context.write(pb.PopResponse(messages=page))
                sent += len(page)
        except (asyncio.CancelledError, grpc.aio.InternalError) as error:
            # The client left before receiving these messages; the earlier ones were delivered. If
            # the client left during a write, gRPC raises InternalError instead.
            self._give_back(queue, messages[sent:])
            raise asyncio.CancelledError from error
        except TooLarge:
            self._give_back(queue, messages[sent:])
            raise

    def _give_back(self, queue: str, messages: Sequence[pb.Message]) -> None:
        left = Grouped.of([message.receipt for message in messages])
        self.asking.give_back_receipts(queue, left.receipts())

    async def _settle(
        self, grouped: Grouped, make: Callable[[list[wire.Receipt]], wire.AnyRequest]
    ) -> pb.SettleResponse:
        first = await self.ask(make(grouped.receipts()), wire.Settled)
        done, lost = first.done, grouped.messages(first.lost)
        if len(lost) > len(first.lost):
            # Of a lease with several messages perhaps only some are lost. Retried one by one, the
            # messages settled by the first request are reported as settled again, and the rest is
            # lost.
            single = [wire.Receipt(*lease, [(index, 1)]) for lease, index in lost]
            second = await self.ask(make(single), wire.Settled)
            lost = [lost[position] for position in second.lost]
            done = min(done + second.done, grouped.count() - len(lost))
        return pb.SettleResponse(
            done=done,
            already=grouped.count() - len(lost) - done,
            lost=[grpc_receipts.pack(*message) for message in lost] + grouped.malformed,
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
        return grpc_translation.view(await self.ask(wire.GetView(), wire.ViewInfo))

    @call
    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        return grpc_translation.status(await self.ask(wire.Status(), wire.StatusInfo))

    @call
    async def Places(self, request: pb.PlacesRequest, context: Context) -> pb.PlacesResponse:
        return grpc_translation.places(await self.ask(wire.ClusterStatus(), wire.ClusterInfo))

    @call
    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        joined = await self.ask(grpc_translation.join(request), wire.Joined)
        return pb.JoinResponse(
            cluster=joined.cluster, partitions=joined.partitions, view=joined.view
        )

    @call
    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:
        await self.ask(wire.Leave(request.node, request.force), wire.Done)
        return pb.LeaveResponse()

    @call
    async def Recover(self, request: pb.RecoverRequest, context: Context) -> pb.RecoverResponse:
        asked = wire.Recover(
            list(request.lost), request.execute, request.force_voters, list(request.partitions)
        )
        return grpc_translation.recovery(await self.ask(asked, wire.Recovery))


def _draw() -> Iterator[tuple[int, int]]:
    """(producer, batch) for pushes without a name: the edge is then their producer."""
    producer = secrets.randbits(ids.PRODUCER_BITS)
    return ((producer, batch) for batch in itertools.count(1))


def _wait_ms(wait_ms: int, remaining_s: float | None) -> int:
    """A pop's wait, shortened so that an empty response arrives before the call's deadline."""
    if remaining_s is None or not 0 < wait_ms <= limits.WAIT_MS_MAX:
        return wait_ms
    return max(0, min(wait_ms, int(remaining_s * 1000) - DEADLINE_MARGIN_MS))
