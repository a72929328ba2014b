"""Weft through the Python client: a batching producer, and pops and acks of whole batches.

As in `weft bench`, 16 pops or acks run concurrently, so that one is decoded while another waits for
the disk. With a thousand queues each queue has one producer and one waiting pop.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack
from typing import Final

import weft
from weft.aio import Client as AsyncClient
from weft.aio import Queue as AsyncQueue
from weft.aio import connect as connect_async

from .server import Address
from .session import SILENCE_S, Flow, Lost, Session

#: Concurrent pops and acks of one queue.
_PIPELINE: Final = 16
#: In-flight batches of a producer: four times the default, for throughput.
_PUSHES: Final = 32


class WeftQueues(Session):
    def __init__(self, address: Address) -> None:
        self._servers: list[str] = address["servers"]
        self._client = weft.connect(self._servers)
        self._bodies: list[bytes] = []
        self._producers: dict[str, weft.Producer] = {}
        self._ends = ExitStack()
        self._loop = asyncio.new_event_loop()
        self._async: AsyncClient | None = None
        self._async_ends = AsyncExitStack()
        self._taken = 0

    def create(self, queues: list[str]) -> None:
        for queue in queues:
            self._client.create_queue(queue)

    def drop(self, queues: list[str]) -> None:
        for queue in queues:
            self._client.delete_queue(queue)

    def left(self, queues: list[str]) -> int:
        counts = [self._client.queue(queue).stats() for queue in queues]
        return sum(each.ready + each.leased + each.delayed for each in counts)

    def prepare(self, flow: Flow, *, takes: bool) -> None:
        self._client.status()
        self._bodies = flow.bodies()
        if takes:
            self._loop.run_until_complete(self._connect())

    async def _connect(self) -> None:
        self._async = await self._async_ends.enter_async_context(connect_async(self._servers))
        await self._async.status()

    def produce(self, flow: Flow) -> None:
        for queue, bodies in flow.batches(self._bodies):
            self._producer(queue).send_many(bodies)
        for producer in self._producers.values():
            producer.flush()

    def _producer(self, queue: str) -> weft.Producer:
        made = self._producers.get(queue)
        if made is None:
            made = self._ends.enter_context(self._client.queue(queue).producer(in_flight=_PUSHES))
            self._producers[queue] = made
        return made

    def consume(self, flow: Flow) -> None:
        self._loop.run_until_complete(self._consume(flow))

    async def _consume(self, flow: Flow) -> None:
        assert self._async is not None, "prepare first"
        each = _PIPELINE if len(flow.queues) == 1 else 1
        queues = [self._async.queue(name) for name in flow.queues for _ in range(each)]
        works = [asyncio.create_task(self._take(queue, flow)) for queue in queues]
        # The first task that finishes cancels the others, which wait for messages in vain.
        await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        for work in works:
            work.cancel()
        for outcome in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _take(self, queue: AsyncQueue, flow: Flow) -> None:
        while self._taken < flow.count:
            batch = await queue.pop_many(flow.batch, wait_ms=int(SILENCE_S * 1000))
            if not batch:
                raise Lost(f"nothing came for {SILENCE_S} s; {self._taken} were acked")
            await queue.ack_many(batch)
            self._taken += len(batch)
            if len(flow.queues) > 1:
                del batch  # Otherwise each queue's last batch stays in memory during the next pop.

    def push(self, queue: str, body: bytes) -> None:
        self._client.queue(queue).push(body)

    def pop_ack(self, queue: str) -> None:
        message = self._client.queue(queue).pop()
        if message is None:
            raise Lost("a message that was pushed is not there")
        message.ack()

    def close(self) -> None:
        self._loop.run_until_complete(self._async_ends.aclose())
        self._loop.close()
        self._ends.close()
        self._client.close()
