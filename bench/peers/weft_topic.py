"""Fan-out through a Weft topic: a batch is stored once, with a head of its own in each queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Final

from weft.aio import Topic
from weft.aio import connect as connect_async
from weft.limits import BATCH_COUNT_MAX

from .server import Address
from .session import Flow
from .weft_queues import WeftQueues

#: Batches in flight.
_IN_FLIGHT: Final = 16


class WeftTopic(WeftQueues):
    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._topic: Topic | None = None
        self._topic_ends = AsyncExitStack()

    def create(self, queues: list[str]) -> None:
        super().create(queues)
        self._client.create_topic(_name(queues))
        for queue in queues:
            self._client.bind(_name(queues), queue)

    def drop(self, queues: list[str]) -> None:
        self._client.delete_topic(_name(queues))
        super().drop(queues)

    def prepare(self, flow: Flow, *, takes: bool) -> None:
        super().prepare(flow, takes=takes)
        if not takes:
            self._loop.run_until_complete(self._open_topic(flow))

    async def _open_topic(self, flow: Flow) -> None:
        client = await self._topic_ends.enter_async_context(connect_async(self._servers))
        self._topic = client.topic(_name(flow.queues))
        await self._topic.describe()

    def produce(self, flow: Flow) -> None:
        self._loop.run_until_complete(self._produce(flow))

    async def _produce(self, flow: Flow) -> None:
        batches = _batches(flow, self._bodies)
        async with asyncio.TaskGroup() as pushes:
            for _ in range(_IN_FLIGHT):
                pushes.create_task(self._push(batches))

    async def _push(self, batches: Iterator[list[bytes]]) -> None:
        assert self._topic is not None, "prepare first"
        for bodies in batches:
            await self._topic.push_many(bodies)

    def close(self) -> None:
        self._loop.run_until_complete(self._topic_ends.aclose())
        super().close()


def _batches(flow: Flow, bodies: list[bytes]) -> Iterator[list[bytes]]:
    """The largest batches: the limit counts the copies in all queues."""
    size = min(len(bodies), BATCH_COUNT_MAX // len(flow.queues))
    for first in range(0, flow.count, size):
        yield bodies[: min(size, flow.count - first)]


def _name(queues: list[str]) -> str:
    return f"{queues[0]}-topic"
