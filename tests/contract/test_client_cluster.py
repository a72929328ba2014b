"""A client of several nodes finds them, and survives the loss of any. Asyncio and blocking."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.contract.client_rig import SOON_MS, Rig, after, queue_of
from tests.contract.fake_nodes import PARTITIONS, FakeCluster, FakeNode
from weft import errors
from weft.client.admin.queues import AdminCore
from weft.client.routing.session import ClientSession
from weft.dht import placement
from weft.proto import wire

NO_COPY = wire.Failure("UNAVAILABLE", "no second copy now", True)


def refusals(cluster: FakeCluster) -> int:
    """Number of requests that reached a node which did not lead their partition."""
    return sum(
        node.partition_of(call.request) not in (None, *node.led())
        for node in cluster.nodes
        for call in node.calls
    )


def text_on(node: FakeNode) -> str:
    """A key that the node leads."""
    keys = (f"key-{number}" for number in range(10_000))
    return next(k for k in keys if node.leads(placement.of_text(k, PARTITIONS)))


# --- push -------------------------------------------------------------------------------------


def test_every_push_goes_straight_to_its_primary(rig: Rig, cluster: FakeCluster) -> None:
    async def use(session: ClientSession) -> None:
        queue = queue_of(session)
        for number in range(20):
            await queue.push(b"%d" % number)
        await queue.push(b"x", dedup_key="some key")
        await queue.push_many([b"y" * (1 << 20)] * 40)

    rig.use(use)
    assert refusals(cluster) == 0
    assert all(node.requests(wire.Push) for node in cluster.nodes)
    assert sum(stored.push.count for stored in cluster.messages["q"]) == 61


def test_a_partition_that_moved_is_found(rig: Rig, cluster: FakeCluster) -> None:
    async def use(session: ClientSession) -> None:
        first = cluster.nodes[0]
        key = text_on(first)
        cluster.lead(cluster.nodes[2], *range(PARTITIONS))
        await queue_of(session).push(b"one", dedup_key=key)
        version = session.router.view.version
        await queue_of(session).push_many([b"y" * (1 << 20)] * 40)
        assert session.router.view.version == version == cluster.version

    rig.use(use)
    assert [len(node.requests(wire.Push)) for node in cluster.nodes[:2]] == [1, 0]
    assert len(cluster.nodes[0].requests(wire.GetView)) == 1, (
        "it knew best, and one look was enough"
    )
    assert sum(stored.push.count for stored in cluster.messages["q"]) == 41


def test_batches_of_one_call_follow_their_partitions(rig: Rig, cluster: FakeCluster) -> None:
    """The view changes in the middle of a push of many batches."""
    moved = threading.Event()

    def move(node: FakeNode, call: wire.Call) -> bool:
        if isinstance(call.request, wire.Push) and not moved.is_set():
            moved.set()
            cluster.lead(cluster.nodes[0], *cluster.nodes[1].led())
        return False

    cluster.nodes[1].tap = move

    async def use(session: ClientSession) -> list[Any]:
        return list(await queue_of(session).push_many([b"y" * (1 << 20)] * 60))

    assert len(rig.use(use)) == 60
    assert moved.is_set()
    assert sum(stored.push.count for stored in cluster.messages["q"]) == 60
    assert len(cluster.messages["q"]) == len(cluster.seen)


def test_a_push_survives_the_death_of_its_node(rig: Rig, cluster: FakeCluster) -> None:
    """The node stored the push and died before the answer."""
    doomed: list[FakeNode] = []

    def die(node: FakeNode, call: wire.Call) -> bool:
        if not isinstance(call.request, wire.Push) or doomed:
            return False
        doomed.append(node)
        with cluster.lock:
            cluster.store(call.request, b"\x93\x91\xc4\x01x\xc0\xc0")
        rig.beside(cluster.die, node, 0.5)
        return True

    for node in cluster.nodes:
        node.tap = die

    async def use(session: ClientSession) -> None:
        await queue_of(session).push(b"x")

    began = time.monotonic()
    rig.use(use)
    assert doomed
    assert len(cluster.messages["q"]) == 1
    assert time.monotonic() - began < SOON_MS / 4000


def test_a_push_leaves_a_node_that_is_silent(rig: Rig, cluster: FakeCluster) -> None:
    async def use(session: ClientSession) -> None:
        await queue_of(session).push(b"x", dedup_key=key)

    key = text_on(cluster.nodes[1])
    cluster.nodes[1].mute = True
    rig.beside(after(0.3, cluster.fail_over, cluster.nodes[1]))
    began = time.monotonic()
    rig.use(use)
    assert cluster.nodes[1].requests(wire.Push)
    assert len(cluster.messages["q"]) == 1
    assert time.monotonic() - began < SOON_MS / 4000


def test_a_slow_node_is_heard_out(rig: Rig, cluster: FakeCluster) -> None:
    """The node answers later than the first retry timeout."""

    def slow(node: FakeNode, call: wire.Call) -> bool:
        if isinstance(call.request, wire.Push):
            time.sleep(1.3)
        return False

    for node in cluster.nodes:
        node.tap = slow

    async def use(session: ClientSession) -> None:
        await queue_of(session).push(b"x")

    rig.use(use)
    assert len(cluster.messages["q"]) == 1


def test_an_answer_of_unavailable_is_asked_again(rig: Rig, cluster: FakeCluster) -> None:
    cluster.failures = [NO_COPY] * 3

    async def use(session: ClientSession) -> None:
        await queue_of(session).push(b"x")

    rig.use(use)
    assert len(cluster.failed) == 3
    assert len({(push.producer, push.batch) for push in cluster.failed}) == 1
    assert len(cluster.messages["q"]) == 1


# --- operations without a retry ---------------------------------------------------------------


def test_what_must_not_be_done_twice_is_not_made_again(rig: Rig, cluster: FakeCluster) -> None:
    node = cluster.nodes[1]
    key = text_on(node)

    def die(node: FakeNode, call: wire.Call) -> bool:
        if isinstance(call.request, wire.Append):
            cluster.table[key] += call.request.value
            rig.beside(cluster.die, node)
            return True
        return False

    node.tap = die

    async def use(session: ClientSession) -> None:
        await session.ask(wire.Append(key, b"x"), wire.Done, None)

    with pytest.raises(errors.ConnectionLost, match=r"append.*may or may not"):
        rig.use(use)
    assert cluster.table[key] == b"x"


def test_what_was_surely_not_sent_is_made_elsewhere(rig: Rig, cluster: FakeCluster) -> None:
    node = cluster.nodes[1]
    key = text_on(node)
    node.kill()
    rig.beside(after(0.5, cluster.fail_over, node))

    async def use(session: ClientSession) -> int:
        return (await session.ask(wire.Append(key, b"x"), wire.Done, None)).count

    assert rig.use(use) == 1


def test_anyone_is_asked_when_one_is_down(rig: Rig, cluster: FakeCluster) -> None:
    cluster.nodes[0].kill()
    cluster.nodes[1].mute = True

    async def use(session: ClientSession) -> None:
        admin = AdminCore(session)
        assert await admin.list_queues("") == []
        asked = len(cluster.nodes[1].calls)
        assert await admin.list_queues("") == []
        assert len(cluster.nodes[1].calls) == asked, "the live node is remembered"
        assert await admin.delete_queue("q") == 0

    rig.use(use)
