"""Producers and consumers of a grouped queue, observed by `GroupOrder`, in one event loop.

All of them are asyncio clients in one process, so one clock orders their observations.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

import weft

from . import group_order
from .group_order import GroupOrder

LEASE_MS: Final = 4_000
_PRODUCERS: Final = 4
_CONSUMERS: Final = 4
#: A bound that only ends a hang: every lease of a dead answer has to expire.
_DRAIN_S_MAX: Final = 240.0


async def run(
    servers: list[str], queue: str, groups: int, order: GroupOrder, disturb: Callable[[], object]
) -> int:
    """Pushes and consumes while `disturb` runs in a thread, then drains; returns the messages."""
    stopped = asyncio.Event()
    pushed: dict[str, int] = dict.fromkeys((f"g{number}" for number in range(groups)), 0)

    async def produce(handle: weft.aio.Queue, seed: int) -> None:
        rng, mine = random.Random(seed), sorted(pushed)[seed::_PRODUCERS]
        while not stopped.is_set():
            group, count = rng.choice(mine), rng.randrange(1, 4)
            first = pushed[group]
            bodies = [group_order.body(group, first + number) for number in range(count)]
            await handle.push_many(bodies, groups=[group] * count)
            pushed[group] += count

    async def consume(handle: weft.aio.Queue) -> None:
        while not stopped.is_set() or order.settled < sum(pushed.values()):
            await consume_once(handle)

    async def consume_once(handle: weft.aio.Queue) -> None:
        began = time.monotonic()
        batch = await handle.pop_many(10, wait_ms=500)
        found = [group_order.parse(message.body) for message in batch]
        order.deliver(time.monotonic(), began + LEASE_MS / 1000, found)
        for message, each in zip(batch, found, strict=True):
            order.try_ack(each)
            try:
                await message.ack()
            except weft.LeaseLost as error:
                if error.in_doubt:
                    order.doubt_ack(each)
                continue
            order.confirm_ack(each)

    async def left(handle: weft.aio.Queue) -> int:
        stats = await handle.stats()
        return stats.ready + stats.leased + stats.delayed

    async def drain(handle: weft.aio.Queue) -> None:
        """Consumes what was delivered again after an ack in doubt."""
        while await left(handle):
            await consume_once(handle)

    async with weft.aio.connect(servers, timeout_ms=60_000) as client:
        await client.create_queue(queue, lease_ms=LEASE_MS, grouped=True)
        handle = client.queue(queue)
        producers = [produce(handle, seed) for seed in range(_PRODUCERS)]
        consumers = [consume(handle) for _ in range(_CONSUMERS)]
        load = asyncio.gather(*producers, *consumers)
        await asyncio.to_thread(disturb)
        stopped.set()
        await asyncio.wait_for(load, _DRAIN_S_MAX)
        await asyncio.wait_for(drain(handle), _DRAIN_S_MAX)
    return sum(pushed.values())
