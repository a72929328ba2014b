"""Pops and acks over several nodes find every message, even while nodes die.

Asyncio and blocking.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.contract.client_rig import SOON_MS, Rig, after, queue_of, when_it_has
from tests.contract.fake_nodes import FakeCluster, FakeNode
from weft import errors
from weft.client.consumer.message import AsyncMessage
from weft.client.routing.session import ClientSession
from weft.pop_search import LIST_EVERY
from weft.proto import wire


def test_messages_are_found_wherever_they_are(rig: Rig, cluster: FakeCluster) -> None:
    for node in cluster.nodes:
        cluster.put(node, "q", *(node.name.encode() for _ in range(5)))

    async def use(session: ClientSession) -> Counter[bytes]:
        seen: Counter[bytes] = Counter()
        while (message := await queue_of(session).pop()) is not None:
            seen[message.body] += 1
        return seen

    assert rig.use(use) == {b"n0": 5, b"n1": 5, b"n2": 5}


def test_the_local_node_is_asked_first(rig: Rig, cluster: FakeCluster) -> None:
    """The first seed: its address is node 0's."""
    cluster.put(cluster.nodes[0], "q", b"x")

    async def use(session: ClientSession) -> int:
        assert await queue_of(session).pop() is not None
        return session.trails.of("q").hops

    assert rig.use(use) == 0
    assert [len(node.calls) for node in cluster.nodes[1:]] == [0, 0]


def test_one_pop_takes_from_all_who_are_known_to_have_some(rig: Rig, cluster: FakeCluster) -> None:
    for node in cluster.nodes[1:]:
        cluster.put(node, "q", *(b"x" for _ in range(10)))

    async def use(session: ClientSession) -> list[int]:
        return [len(await queue_of(session).pop_many(100)) for _ in range(2)]

    assert sum(rig.use(use)) == 20


def test_nobody_starves(rig: Rig, cluster: FakeCluster) -> None:
    """One node always has more; the others are served all the same."""
    near, *others = cluster.nodes
    cluster.put(near, "q", b"n0")
    for node in others:
        cluster.put(node, "q", *(node.name.encode() for _ in range(5)))

    async def use(session: ClientSession) -> Counter[bytes]:
        seen: Counter[bytes] = Counter()
        for _ in range(2 * LIST_EVERY + 20):
            cluster.put(near, "q", b"n0")
            message = await queue_of(session).pop()
            assert message is not None
            seen[message.body] += 1
        return seen

    seen = rig.use(use)
    assert seen[b"n1"] == seen[b"n2"] == 5
    assert seen[b"n0"] >= 20


def test_a_long_pop_is_woken_wherever_the_message_lands(rig: Rig, cluster: FakeCluster) -> None:
    async def use(session: ClientSession) -> list[float]:
        queue, times = queue_of(session), []
        for node in cluster.nodes:
            rig.beside(
                when_it_has,
                cluster.owner("q"),
                wire.Where,
                after(0.3, cluster.put, node, "q", b"x"),
            )
            began = time.monotonic()
            assert await queue.pop(wait_ms=SOON_MS) is not None
            times.append(time.monotonic() - began)
            for thread in rig.threads:
                thread.join()
            drain(cluster)
        return times

    times = rig.use(use)
    assert max(times) < SOON_MS / 2000, times


def test_a_pop_that_oversleeps_asks_for_no_negative_wait(rig: Rig, cluster: FakeCluster) -> None:
    async def use(session: ClientSession) -> object:
        runtime = session.router.runtime
        sleep = runtime.sleep

        async def oversleep(seconds: float) -> None:
            await sleep(seconds + 1)  # as on a loaded machine

        runtime.sleep = oversleep  # type: ignore[method-assign]
        return await queue_of(session).pop(wait_ms=800)

    assert rig.use(use) is None
    asked = wheres(cluster.owner("q"))
    assert len(asked) >= 2  # the query, and the wait
    assert min(one.wait_ms for one in asked) == 0


def test_what_nodes_said_when_they_had_nothing_left_goes_to_the_keeper_of_the_list(
    rig: Rig, cluster: FakeCluster
) -> None:
    owner = cluster.owner("q")

    async def use(session: ClientSession) -> None:
        queue = queue_of(session)
        assert await queue.pop() is None  # all nodes asked; the list's owner accepts reports
        assert not any(one.fallen for one in wheres(owner))
        for node in cluster.nodes:
            cluster.put(node, "q", b"x")
            assert await queue.pop() is not None
        assert await queue.pop() is None
        assert await queue.pop() is None

    rig.use(use)
    told = [one.fallen for one in wheres(owner)]
    assert {name for fallen in told for name in fallen} == {node.name for node in cluster.nodes}
    assert told[0] == {}
    assert told[-1], "a look in vain is passed on as well"
    first, *others = [one for node in cluster.nodes for one in pops(node)]
    assert not first.passes_on
    assert any(one.passes_on for one in others)


def test_who_is_not_heeded_promises_nothing(rig: Rig, cluster: FakeCluster) -> None:
    """A list owner of the previous version: the nodes announce to it themselves, as before."""
    cluster.heeds = False

    async def use(session: ClientSession) -> None:
        for node in cluster.nodes:
            cluster.put(node, "q", b"x")
            assert await queue_of(session).pop() is not None
        assert await queue_of(session).pop(wait_ms=100) is None

    rig.use(use)
    assert wheres(cluster.owner("q"))
    assert not any(one.fallen for one in wheres(cluster.owner("q")))
    assert not any(one.passes_on for node in cluster.nodes for one in pops(node))


def wheres(node: FakeNode) -> list[wire.Where]:
    return [one for one in node.requests(wire.Where) if isinstance(one, wire.Where)]


def pops(node: FakeNode) -> list[wire.Pop]:
    return [one for one in node.requests(wire.Pop) if isinstance(one, wire.Pop)]


def drain(cluster: FakeCluster) -> None:
    for node in cluster.nodes:
        while not node.arrived.empty():
            node.arrived.get()


@pytest.mark.parametrize("how", ["dead", "silent"])
def test_the_death_of_the_lists_node_does_not_end_a_wait(
    rig: Rig, cluster: FakeCluster, how: str
) -> None:
    owner = cluster.owner("q")
    other = next(node for node in cluster.nodes if node is not owner)

    def happen() -> None:
        time.sleep(0.2)
        if how == "dead":
            cluster.die(owner, 0.3)
        else:
            owner.mute = True
            owner._parked.clear()
            cluster.fail_over(owner)
        time.sleep(0.3)
        cluster.put(other, "q", b"x")

    rig.beside(when_it_has, owner, wire.Where, happen)

    async def use(session: ClientSession) -> AsyncMessage | None:
        return await queue_of(session).pop(wait_ms=SOON_MS)

    began = time.monotonic()
    message = rig.use(use)
    assert message is not None
    assert message.body == b"x"
    assert time.monotonic() - began < SOON_MS / 2000


def test_nothing_is_said_only_when_every_node_said_so(rig: Rig, cluster: FakeCluster) -> None:
    """A dead node's messages are delivered by its successor."""
    dead = cluster.nodes[2]
    cluster.put(dead, "q", b"x")
    dead.kill()
    rig.beside(after(0.6, cluster.fail_over, dead))

    async def use(session: ClientSession) -> list[AsyncMessage | None]:
        queue = queue_of(session)
        return [await queue.pop(), await queue.pop()]

    first, second = rig.use(use)
    assert first is not None
    assert second is None


def test_a_node_that_stays_away_is_an_error_in_the_end(rig: Rig, cluster: FakeCluster) -> None:
    cluster.nodes[2].kill()

    async def use(session: ClientSession) -> None:
        await queue_of(session).pop(timeout_ms=2000)

    with pytest.raises(errors.Unavailable):
        rig.use(use)


def test_an_unknown_queue_is_an_error_at_once(rig: Rig, cluster: FakeCluster) -> None:
    gone = wire.Failure("QUEUE_NOT_FOUND", "no queue q", False)
    for node in cluster.nodes:
        node._pop = lambda request: (gone, ())  # type: ignore[method-assign]

    async def use(session: ClientSession) -> None:
        await queue_of(session).pop(wait_ms=SOON_MS)

    with pytest.raises(errors.QueueNotFound):
        rig.use(use)


# --- settling ---------------------------------------------------------------------------------


async def take(session: ClientSession, count: int) -> list[AsyncMessage]:
    taken: list[AsyncMessage] = []
    while len(taken) < count:
        taken += await queue_of(session).pop_many(count)
    return taken


def test_acks_go_to_the_nodes_that_lent(rig: Rig, cluster: FakeCluster) -> None:
    for node in cluster.nodes:
        cluster.put(node, "q", b"x", b"y")

    async def use(session: ClientSession) -> None:
        await queue_of(session).ack_many(await take(session, 6))

    rig.use(use)
    assert len(cluster.acked) == 6
    assert [len(node.requests(wire.Ack)) for node in cluster.nodes] == [1, 1, 1]


def test_an_ack_is_sorted_again_when_a_partition_has_moved(rig: Rig, cluster: FakeCluster) -> None:
    """Messages that stayed are acked; messages that moved lost their leases and return."""
    node, other = cluster.nodes[:2]
    stays, moves = node.led()[:2]

    async def use(session: ClientSession) -> None:
        cluster.put(node, "q", b"stays", partition=stays)
        cluster.put(node, "q", b"moves", partition=moves)
        messages = await take(session, 2)
        cluster.lead(other, moves)
        with pytest.raises(errors.LeaseLost, match="1 message"):
            await queue_of(session).ack_many(messages)

    rig.use(use)
    assert [stored.partition for stored in cluster.acked] == [stays]
    assert [stored.partition for stored in cluster.messages["q"]] == [moves]


def test_an_ack_survives_a_pause_of_its_node(rig: Rig, cluster: FakeCluster) -> None:
    """The first answer is lost with the connection; a repeated ack has no further effect."""
    node = cluster.nodes[0]
    cluster.put(node, "q", b"x")

    def cut(node: FakeNode, call: wire.Call) -> bool:
        if isinstance(call.request, wire.Ack):
            node.tap = None
            rig.beside(reopen, node)
            return True
        return False

    def reopen(node: FakeNode) -> None:
        node.drop()
        node.listen()

    async def use(session: ClientSession) -> None:
        messages = await take(session, 1)
        node.tap = cut
        await queue_of(session).ack_many(messages)

    rig.use(use)
    assert len(cluster.acked) == 1
