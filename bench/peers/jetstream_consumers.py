"""Fan-out in NATS JetStream: one stream, and a durable consumer in the place of each queue.

The stream stores a message once. As for a single queue, push consumers with AckPolicy.ALL are the
fastest way of the Python client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nats.js import api

from .jetstream import PENDING_BYTES_MAX, UNACKED_BYTES_MAX, UNACKED_MAX, JetStream
from .session import SILENCE_S, Flow, Lost


class JetStreamConsumers(JetStream):
    def create(self, queues: list[str]) -> None:
        super().create([_name(queues)])

    def drop(self, queues: list[str]) -> None:
        super().drop([_name(queues)])

    def left(self, queues: list[str]) -> int:
        stream = _name(queues)
        state = self._run(self._stream.stream_info(stream)).state
        floors = {
            each.name: each.ack_floor.stream_seq
            for each in self._run(self._stream.consumers_info(stream))
        }
        return sum(state.last_seq - floors.get(queue, 0) for queue in queues)

    async def _make_consumers(self, flow: Flow) -> None:
        each = max(16, min(UNACKED_MAX, UNACKED_BYTES_MAX // max(1, flow.size)))
        for queue in flow.queues:
            config = api.ConsumerConfig(
                durable_name=queue,
                deliver_subject=self._connection.new_inbox(),
                ack_policy=api.AckPolicy.ALL,
                max_ack_pending=each,
            )
            await self._stream.add_consumer(_name(flow.queues), config)
            self._consumers[queue] = config

    async def _produce(self, flow: Flow) -> None:
        publish, stream = self._stream.publish_async, _name(flow.queues)
        for _, bodies in flow.batches(self._bodies):
            for body in bodies:
                await publish(stream, body)
        await self._stream.publish_async_completed()

    async def _consume(self, flow: Flow) -> None:
        unacked: int = self._consumers[flow.queues[0]].max_ack_pending
        every = min(flow.visit, unacked // 4)
        moved = asyncio.Event()
        seen = dict.fromkeys(flow.queues, 0)
        last: dict[str, Any] = {}

        def taking(queue: str) -> Callable[[Any], Awaitable[None]]:
            async def take(message: Any) -> None:
                seen[queue] += 1
                last[queue] = message
                if seen[queue] % every == 0:
                    await message.ack()
                moved.set()

            return take

        for queue, config in self._consumers.items():
            await self._stream.subscribe_bind(
                stream=_name(flow.queues),
                config=config,
                consumer=queue,
                cb=taking(queue),
                manual_ack=True,
                pending_bytes_limit=PENDING_BYTES_MAX,
            )
        while sum(seen.values()) < flow.count:
            moved.clear()
            try:
                await asyncio.wait_for(moved.wait(), SILENCE_S)
            except TimeoutError:
                raise Lost(f"nothing came for {SILENCE_S} s; {seen} were taken") from None
            await asyncio.sleep(0.001)
        for queue, message in last.items():
            if seen[queue] % every:
                await message.ack_sync(timeout=SILENCE_S)
        await self._connection.flush()


def _name(queues: list[str]) -> str:
    return f"{queues[0]}-stream"
