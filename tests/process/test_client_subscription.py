"""Subscriptions and staged publish with both Python clients, at a real node."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator

import pytest

import weft
from weft.client.transport.blocking_link import run
from weft.errors import InvalidArgument, UsageError
from weft.proto import pipelines, wire
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(1) as nodes:
        yield nodes


@pytest.fixture
def name(request: pytest.FixtureRequest, nodes: Cluster) -> str:
    """A queue for each test."""
    found = str(request.node.name)[:80]
    nodes.client().create_queue(found)
    return found


def test_the_sync_client(nodes: Cluster, name: str) -> None:
    with weft.connect(nodes.servers) as client:
        queue = client.queue(name)
        queue.push_many([b"a", b"b"], headers=[{"k": "v"}, None], keys=["one", None])
        queue.push(b"c")
        sub = client.subscription(name, "sub")
        with pytest.raises(UsageError, match="open the subscription"):
            sub.reserve(1)
        epoch = sub.open()
        assert sub.epoch == epoch
        made = sub.reserve(1, max_messages=2)
        assert made is not None
        assert sub.describe(1) == made == sub.reserve(1)
        assert (made.number, made.messages, len(made.slices)) == (1, 2, 1)
        part = copy.deepcopy(made.slices[0])  # deepcopy follows the rules of pickle
        batch = sub.read(1, part)
        assert (batch.bodies, batch.headers, batch.keys) == (
            [b"a", b"b"], [{"k": "v"}, None], ["one", None],
        )  # fmt: skip
        assert (batch.deliveries, len(batch), batch.end) == ([1, 1], 2, 2)
        assert sub.read(1, part, 1).bodies == [b"b"]
        assert batch.timestamps_ms == [made.oldest_ms] * 2
        assert [id_.index for id_ in batch.ids] == [0, 1]
        sub.ack_through(1)
        sub.ack_through(1)
        stats = sub.stats()
        assert (stats.acked_through, stats.reserved_through, stats.high_water) == (1, 1, 2)
        assert (stats.backlog_messages, stats.reserved_messages) == (1, 0)
        newer = client.subscription(name, "sub")
        newer.open()
        calls: list[Callable[[], object]] = [
            sub.heartbeat, lambda: sub.reserve(2), lambda: sub.ack_through(1),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(weft.Fenced):
                call()
        same = client.subscription(name, "sub", epoch=newer.epoch)
        assert same.reserve(2) is not None
        assert same.reserve(3) is None
        assert client.list_subscriptions(name)[0].reserved_messages == 1
        assert same.release_all() == 1
        assert client.delete_subscription(name, "sub") == 0
        with pytest.raises(weft.SubscriptionNotFound):
            newer.heartbeat()
        assert queue.stats().ready == 1


def test_the_sync_client_publishes(nodes: Cluster, name: str) -> None:
    with weft.connect(nodes.servers) as client:
        stage = client.stage(name, "app", 0, 0, 0)
        bodies = [b"%d" % number for number in range(9000)]
        assert stage.push_many(bodies, headers=[{"n": "1"}] * 9000) == 9000
        stage.push(b"last", key="k")
        assert stage.close() == stage.count == 9001
        assert stage.close() == 9001
        with pytest.raises(UsageError):
            stage.push(b"too late")
        other = client.stage(name, "app", 0, 0, 0)  # the same attempt, in another process
        other.push(b"x")
        other.close()
        assert client.last_published(name, "app") is None
        done = client.publish(name, "app", 0, [stage.winner])
        assert done == weft.Published(9001, False)
        assert client.publish(name, "app", 0, [(0, 0)]) == weft.Published(9001, True)
        assert client.last_published(name, "app") == 0
        assert client.queue(name).stats().staged == 0
        seen = client.queue(name).pop_many(20_000)
        assert [message.body for message in seen] == [*bodies, b"last"]
        assert (seen[0].headers, seen[-1].key) == ({"n": "1"}, "k")
        empty = client.stage(name, "app", 1, 0, 0)
        assert empty.close() == 0
        assert client.abort(name, "app", 1) == 0
        with pytest.raises(InvalidArgument):
            client.publish(name, "app", 1, [(0, 0, 0, 0)])  # type: ignore[list-item]
        with pytest.raises(weft.Fenced, match="published already"):
            client.stage(name, "app", 0, 5, 0).close()


def test_the_async_client(nodes: Cluster, name: str) -> None:
    async def use() -> None:
        async with weft.aio.connect(nodes.servers) as client:
            await client.queue(name).push(b"a")
            sub = client.subscription(name, "sub")
            await sub.open()
            made = await sub.reserve(1)
            assert made is not None
            assert (await sub.read(1, made.slices[0])).bodies == [b"a"]
            assert await sub.describe(1) == made
            await sub.heartbeat()
            await sub.ack_through(1)
            assert (await sub.stats()).acked_through == 1
            assert len(await client.list_subscriptions(name)) == 1
            assert await sub.release_all() == 0
            stage = client.stage(name, "app", 3, 0, 0)
            await stage.push_many([b"b", b"c"])
            assert await stage.close() == 2
            done = await client.publish(name, "app", 3, [(0, 0)])
            assert (done.messages, done.already) == (2, False)
            assert await client.last_published(name, "app") == 3
            assert await client.abort(name, "app", 4) == 0
            assert await client.delete_subscription(name, "sub") == 0

    asyncio.run(use())


def test_what_nodes_ask_of_each_other_is_not_for_clients(nodes: Cluster, name: str) -> None:
    with weft.connect(nodes.servers) as client:
        session = client._session
        for request in (
            pipelines.Finish(name, [(0, 1)], True),
            pipelines.Reveal(name, "app", 0, [1], [0]),
            pipelines.BeginReserve(name, "sub", 1, 1, True),
        ):
            link = session.router.link(0)
            said, _ = run(link.call(request, (), session.deadline(None)))
            assert said == wire.Failure(
                "INVALID_ARGUMENT", "this request is internal to the cluster", False
            )
