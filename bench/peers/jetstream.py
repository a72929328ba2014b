"""NATS JetStream through nats-py: one stream on files is one queue.

Pushes are asynchronous with at most 4,000 unconfirmed. Batches are received by a push consumer with
AckPolicy.ALL, where one acknowledgement covers all earlier messages: measured here, several times
faster than pulling in batches with either policy. Single pops use pull, as documented.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import nats
from nats.js import api

from .server import Address
from .session import SILENCE_S, Flow, Lost, Session

T = TypeVar("T")

_UNCONFIRMED_MAX: Final = 4000
UNACKED_MAX: Final = 5000
UNACKED_BYTES_MAX: Final = 32 * 1024 * 1024
#: The client drops messages beyond this limit, so the limit exceeds the unacknowledged maximum.
PENDING_BYTES_MAX: Final = 4 * UNACKED_BYTES_MAX


class JetStream(Session):
    def __init__(self, address: Address) -> None:
        self._loop = asyncio.new_event_loop()
        self._replicas: int = address["replicas"]
        self._bodies: list[bytes] = []
        self._pulls: dict[str, Any] = {}
        self._consumers: dict[str, Any] = {}
        self._connection: Any = self._run(nats.connect(address["servers"]))
        self._stream: Any = self._connection.jetstream(
            timeout=SILENCE_S, publish_async_max_pending=_UNCONFIRMED_MAX
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def create(self, queues: list[str]) -> None:
        for queue in queues:
            self._run(
                self._stream.add_stream(
                    name=queue,
                    subjects=[queue],
                    storage=api.StorageType.FILE,
                    num_replicas=self._replicas,
                )
            )

    def drop(self, queues: list[str]) -> None:
        for queue in queues:
            self._run(self._stream.delete_stream(queue))

    def left(self, queues: list[str]) -> int:
        """Messages after the consumer's ack floor; without a consumer, all messages."""
        total = 0
        for queue in queues:
            state = self._run(self._stream.stream_info(queue)).state
            consumers = self._run(self._stream.consumers_info(queue))
            acked = max((each.ack_floor.stream_seq for each in consumers), default=0)
            total += state.last_seq - acked
        return total

    def prepare(self, flow: Flow, *, takes: bool) -> None:
        self._bodies = flow.bodies()
        if takes:
            self._run(self._make_consumers(flow))

    async def _make_consumers(self, flow: Flow) -> None:
        """Creates push consumers; delivery starts with a subscription to the delivery subject."""
        unacked = max(16, min(UNACKED_MAX, UNACKED_BYTES_MAX // max(1, flow.size)))
        for queue in flow.queues:
            config = api.ConsumerConfig(
                durable_name="bench",
                deliver_subject=self._connection.new_inbox(),
                ack_policy=api.AckPolicy.ALL,
                max_ack_pending=unacked,
            )
            await self._stream.add_consumer(queue, config)
            self._consumers[queue] = config

    def produce(self, flow: Flow) -> None:
        self._run(self._produce(flow))

    async def _produce(self, flow: Flow) -> None:
        publish = self._stream.publish_async
        for queue, bodies in flow.batches(self._bodies):
            for body in bodies:
                await publish(queue, body)
        await self._stream.publish_async_completed()

    def consume(self, flow: Flow) -> None:
        self._run(self._consume(flow))

    async def _consume(self, flow: Flow) -> None:
        unacked: int = self._consumers[flow.queues[0]].max_ack_pending
        every = min(flow.visit, unacked // 4)
        done, moved = 0, asyncio.Event()
        last: dict[str, Any] = {}
        seen: dict[str, int] = dict.fromkeys(flow.queues, 0)

        async def take(message: Any) -> None:
            nonlocal done
            done += 1
            queue = message.subject
            seen[queue] += 1
            last[queue] = message
            if seen[queue] % every == 0:
                await message.ack()
            moved.set()

        for queue, config in self._consumers.items():
            await self._stream.subscribe_bind(
                stream=queue,
                config=config,
                consumer="bench",
                cb=take,
                manual_ack=True,
                pending_bytes_limit=PENDING_BYTES_MAX,
            )
        while done < flow.count:
            moved.clear()
            try:
                await asyncio.wait_for(moved.wait(), SILENCE_S)
            except TimeoutError:
                raise Lost(f"nothing came for {SILENCE_S} s; {done} were taken") from None
            await asyncio.sleep(0.001)
        for queue, message in last.items():
            if seen[queue] % every:
                await message.ack_sync(timeout=SILENCE_S)
        await self._connection.flush()

    def push(self, queue: str, body: bytes) -> None:
        self._run(self._stream.publish(queue, body))

    def pop_ack(self, queue: str) -> None:
        self._run(self._pop_ack(queue))

    async def _pop_ack(self, queue: str) -> None:
        pull = self._pulls.get(queue)
        if pull is None:
            pull = await self._stream.pull_subscribe(queue, durable="one")
            self._pulls[queue] = pull
        (message,) = await pull.fetch(1, timeout=SILENCE_S)
        await message.ack_sync(timeout=SILENCE_S)

    def close(self) -> None:
        self._run(self._connection.close())
        self._loop.close()
