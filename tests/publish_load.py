"""Publishers to topics and multicasts, and a consumer of each queue, observed by `PublishOrder`.

All of them are asyncio clients in one process, so one clock orders their observations. A publisher
pushes its next message when the one before has an answer; a push without an answer is in doubt.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final

import weft

from .publish_order import Published, PublishOrder

PLAIN: Final = ("plain-0", "plain-1", "plain-2", "plain-3")
ORDERED: Final = ("ordered-0", "ordered-1")
GROUPED: Final = ("grouped-0", "grouped-1")
TOPIC: Final = "feed"
#: Destinations of a multicast without a conflict key: at most one ordered queue.
SETS: Final = (
    ("plain-0", "plain-3"),
    ("ordered-0", "plain-0", "plain-3"),
    ("ordered-1", "plain-2"),
    (*PLAIN, "ordered-0"),
)
#: Destinations on several partitions, which agree.
AGREED: Final = (ORDERED, (*ORDERED, "plain-1"))
GROUPS: Final = 20
LEASE_MS: Final = 4_000
#: Publishers of each kind.
PUBLISHERS: Final = 2
#: A publisher gives up so late that a push in doubt is rare, and ends within a failover of all.
TIMEOUT_MS: Final = 10_000
#: A bound that only ends a hang: every lease of a dead answer has to expire.
_DRAIN_S_MAX: Final = 240.0


class PublishLoad:
    def __init__(self, client: weft.aio.Client, order: PublishOrder, seed: int) -> None:
        self._client = client
        self._order = order
        self._seed = seed
        self.stopped = asyncio.Event()
        self._published = asyncio.Event()
        #: Pushes without an answer.
        self.in_doubt = 0

    async def prepare(self) -> None:
        client = self._client
        for queue in PLAIN:
            await client.create_queue(queue, lease_ms=LEASE_MS)
        for queue in ORDERED:
            await client.create_queue(queue, lease_ms=LEASE_MS, ordered=True)
        for queue in GROUPED:
            await client.create_queue(queue, lease_ms=LEASE_MS, grouped=True)
        await client.create_topic(TOPIC)
        await client.bind(TOPIC, "plain-0")
        await client.bind(TOPIC, "plain-1", headers={"parity": "odd"})
        await client.bind(TOPIC, "ordered-1", prefixes={"parity": "e"})

    async def run(self) -> None:
        publish = (
            self._multicast, self._conflicting, self._agreed, self._topic, self._topic_batch,
        )  # fmt: skip
        kinds = [
            self._publish(f"{kind.__name__.strip('_')}-{number}", kind)
            for kind in publish
            for number in range(PUBLISHERS)
        ]
        queues = (*PLAIN, *ORDERED, *GROUPED)
        await asyncio.gather(self._all(kinds), *(self._consume(queue) for queue in queues))

    async def _all(self, publishers: list[Coroutine[None, None, None]]) -> None:
        """A push under way at the stop is stored after it: consumers wait for the publishers."""
        await asyncio.gather(*publishers)
        self._published.set()

    async def _publish(
        self, name: str, push: Callable[[str, int, random.Random], Awaitable[int]]
    ) -> None:
        rng, number = random.Random(f"{self._seed}/{name}"), 0
        while not self.stopped.is_set():
            number += await push(name, number, rng)
            await asyncio.sleep(rng.random() * 0.02)

    async def _try(
        self, push: Awaitable[object], messages: Sequence[Published], bodies: Sequence[str]
    ) -> None:
        for body, message in zip(bodies, messages, strict=True):
            self._order.attempt(body, message)
        try:
            await push
        except weft.Unavailable:
            self.in_doubt += 1
            return
        for body in bodies:
            self._order.confirm(body)

    async def _multicast(self, name: str, number: int, rng: random.Random) -> int:
        queues, body = rng.choice(SETS), f"{name}/{number}"
        push = self._client.multicast(body.encode(), queues=queues, timeout_ms=TIMEOUT_MS)
        await self._try(push, [Published(name, number, queues)], [body])
        return 1

    async def _conflicting(self, name: str, number: int, rng: random.Random) -> int:
        """The publishers share the groups, so that their messages conflict."""
        group, body = f"g{rng.randrange(GROUPS)}", f"{name}/{number}"
        queues = (*GROUPED, "plain-3") if rng.random() < 0.5 else GROUPED
        push = self._client.multicast(
            body.encode(), queues=queues, conflict_key=group, timeout_ms=TIMEOUT_MS
        )
        await self._try(push, [Published(name, number, queues, group)], [body])
        return 1

    async def _agreed(self, name: str, number: int, rng: random.Random) -> int:
        """All of these conflict, or those of one group do."""
        queues: tuple[str, ...] = rng.choice(AGREED)
        group, body = None, f"{name}/{number}"
        if rng.random() < 0.5:
            queues, group = (*ORDERED, *GROUPED), f"g{rng.randrange(GROUPS)}"
        push = self._client.multicast(
            body.encode(), queues=queues, conflict_key=group, timeout_ms=TIMEOUT_MS
        )
        await self._try(push, [Published(name, number, queues, group, agreed=True)], [body])
        return 1

    async def _topic(self, name: str, number: int, rng: random.Random) -> int:
        await self._push_topic(name, number, 1)
        return 1

    async def _topic_batch(self, name: str, number: int, rng: random.Random) -> int:
        count = rng.randrange(2, 12)
        await self._push_topic(name, number, count)
        return count

    async def _push_topic(self, name: str, first: int, count: int) -> None:
        numbers = range(first, first + count)
        bodies = [f"{name}/{number}" for number in numbers]
        queues = {"odd": ("plain-0", "plain-1"), "even": ("plain-0", "ordered-1")}
        parities = ["odd" if number % 2 else "even" for number in numbers]
        messages = [
            Published(name, number, queues[parity])
            for number, parity in zip(numbers, parities, strict=True)
        ]
        push = self._client.topic(TOPIC).push_many(
            [body.encode() for body in bodies],
            headers=[{"parity": parity} for parity in parities],
            timeout_ms=TIMEOUT_MS,
        )
        await self._try(push, messages, bodies)

    async def _consume(self, name: str) -> None:
        queue = self._client.queue(name)
        while not self._published.is_set() or await _left(queue):
            try:
                batch = await queue.pop_many(20, wait_ms=500)
            except weft.Unavailable:
                continue
            for message in batch:
                self._order.deliver(name, message.body.decode(), str(message.id))
            for message in batch:
                try:
                    await message.ack()
                except (weft.LeaseLost, weft.Unavailable):
                    continue  # delivered again, or acked by an attempt without an answer
                self._order.confirm_ack(name, message.body.decode())


async def _left(queue: weft.aio.Queue) -> bool:
    stats = await queue.stats()
    left = stats.ready + stats.leased + stats.delayed + stats.staged
    return bool(left + stats.uncounted_partitions)


async def run(
    servers: list[str], order: PublishOrder, seed: int, disturb: Callable[[], object]
) -> int:
    """Publishes and consumes while `disturb` runs in a thread, then drains; returns the pushes in
    doubt."""
    async with weft.aio.connect(servers, timeout_ms=60_000) as client:
        load = PublishLoad(client, order, seed)
        await load.prepare()
        running = asyncio.ensure_future(load.run())
        disturbing = asyncio.ensure_future(asyncio.to_thread(disturb))
        await asyncio.wait([running, disturbing], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running  # only an error ends the load before it is stopped
        await disturbing
        load.stopped.set()
        await asyncio.wait_for(running, _DRAIN_S_MAX)
    return load.in_doubt


def order() -> PublishOrder:
    """A checker that knows the queues of this load."""
    return PublishOrder(ORDERED, GROUPED)
