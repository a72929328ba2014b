"""Producers and consumers while nodes die: everything arrives; the application sees a pause."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tests.contract.client_rig import SOON_MS
from tests.contract.fake_nodes import FakeCluster, FakeNode
from weft.client import async_client as async_client
from weft.client import sync_client as sync_client
from weft.proto import wire

TOTAL = 400


def kill_some(cluster: FakeCluster) -> None:
    """Kill one node after the other during the load, the first seed among them."""
    for node in (cluster.nodes[0], cluster.nodes[2]):
        while len(cluster.seen) < TOTAL // 4 or not node.alive:
            time.sleep(0.01)
        cluster.die(node, 0.4)
        time.sleep(0.3)


def bodies(seen: list[bytes]) -> set[int]:
    return {int(body) for body in seen}


async def test_asyncio(cluster: FakeCluster) -> None:
    client = async_client.AsyncClient(cluster.discovery(), SOON_MS)
    seen: list[bytes] = []

    async def produce() -> None:
        async with client.queue("q").producer(batch_count=1, in_flight=4) as producer:
            for number in range(TOTAL):
                await producer.send(b"%d" % number)
                await asyncio.sleep(0.003)

    async def consume() -> None:
        async with client.queue("q").consume(
            batch=4, prefetch=8, wait_ms=500, on_lost=lambda lost: None
        ) as consumer:
            async for message in consumer:
                seen.append(message.body)
                await message.ack()
                if len(bodies(seen)) == TOTAL:
                    return

    killer = threading.Thread(target=kill_some, args=(cluster,))
    killer.start()
    try:
        await asyncio.wait_for(asyncio.gather(produce(), consume()), 200)
    finally:
        await asyncio.to_thread(killer.join)
        await client.close()
    assert bodies(seen) == set(range(TOTAL))
    assert len(cluster.seen) == TOTAL, "each batch was stored once"
    assert not cluster.nodes[0].alive
    assert not cluster.nodes[2].alive


def test_threads(cluster: FakeCluster) -> None:
    seen: list[bytes] = []
    failures: list[BaseException] = []
    killer = threading.Thread(target=kill_some, args=(cluster,))
    killer.start()

    def produce(client: sync_client.Client, first: int) -> None:
        try:
            for number in range(first, TOTAL, 2):
                client.queue("q").push(b"%d" % number)
                time.sleep(0.006)
        except BaseException as error:
            failures.append(error)

    with sync_client.Client(cluster.discovery(), SOON_MS) as client:
        producers = [threading.Thread(target=produce, args=(client, n)) for n in range(2)]
        for producer in producers:
            producer.start()
        with client.queue("q").consume(
            batch=4, prefetch=8, wait_ms=500, idle_ms=100_000, on_lost=lambda lost: None
        ) as consumer:
            for message in consumer:
                seen.append(message.body)
                message.ack()
                if len(bodies(seen)) == TOTAL:
                    break
        for producer in producers:
            producer.join()
    killer.join()
    assert failures == []
    assert bodies(seen) == set(range(TOTAL))
    assert len(cluster.seen) == TOTAL


async def test_a_cancelled_pop_gives_back_what_it_has(cluster: FakeCluster) -> None:
    """One node has delivered its message, and the next is slow to answer."""
    client = async_client.AsyncClient(cluster.discovery(), SOON_MS)
    queue = client.queue("q")
    near, far = cluster.nodes[:2]
    cluster.put(near, "q", b"near")
    client._session.trails.of("q").use_list([near.name, far.name])
    asked = threading.Event()

    def silent(node: FakeNode, call: wire.Call) -> bool:
        if isinstance(call.request, wire.Pop):
            asked.set()
        return isinstance(call.request, wire.Pop)

    far.tap = silent
    pop = asyncio.create_task(queue.pop_many(10, wait_ms=SOON_MS))
    assert await asyncio.to_thread(asked.wait, 100)
    pop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pop
    far.tap = None
    assert not near.leases
    assert len(cluster.messages["q"]) == 1
    await client.close()
