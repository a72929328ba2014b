"""A cluster that changes under its client: growth, loss, moves, returns. Asyncio and blocking."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from tests.contract.client_rig import SOON_MS, Rig, after, queue_of
from tests.contract.fake_nodes import PARTITIONS, FakeCluster
from weft import errors
from weft.client.routing import router as router_module
from weft.client.routing.cluster_view import ClusterNode, ClusterView
from weft.client.routing.discovery import Discovery
from weft.client.routing.session import ClientSession
from weft.proto import weft_pb2, weft_pb2_grpc, wire
from weft.server.edges import grpc_translation


def only(cluster: FakeCluster) -> None:
    """Make the cluster start with its first node alone."""
    cluster.members = cluster.nodes[:1]
    cluster.leaders = [cluster.nodes[0]] * PARTITIONS


def grow(cluster: FakeCluster) -> None:
    with cluster.lock:
        cluster.members = list(cluster.nodes)
        for number, node in enumerate(cluster.nodes):
            cluster.lead(node, *range(number, PARTITIONS, len(cluster.nodes)))


def test_a_cluster_that_grows_is_followed(rig: Rig, cluster: FakeCluster) -> None:
    only(cluster)

    async def use(session: ClientSession) -> None:
        queue = queue_of(session)
        await queue.push(b"x")
        link = session.router.link(0)
        assert not link.fail_fast  # type: ignore[attr-defined]
        grow(cluster)
        for _ in range(20):
            await queue.push(b"x")
        assert not session.router.alone
        assert session.router.link_to("n0") is link, "the link is kept"
        assert link.fail_fast  # type: ignore[attr-defined]

    rig.use(use)
    assert all(node.requests(wire.Push) for node in cluster.nodes)


def test_a_consumer_alone_learns_that_the_cluster_grew(
    rig: Rig, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer pushes nothing, so no node reports the new view; the client polls for it."""
    monkeypatch.setattr(router_module, "REFRESH_EVERY_S", 0.1)
    only(cluster)

    async def use(session: ClientSession) -> None:
        queue = queue_of(session)
        assert await queue.pop() is None
        grow(cluster)
        cluster.put(cluster.nodes[2], "q", b"x")
        assert await queue.pop(wait_ms=SOON_MS) is not None

    rig.use(use)


def test_a_cluster_that_shrinks_to_one_is_waited_for(rig: Rig, cluster: FakeCluster) -> None:
    last = cluster.nodes[1]

    async def use(session: ClientSession) -> None:
        queue = queue_of(session)
        for node in (cluster.nodes[0], cluster.nodes[2]):
            cluster.die(node)
        await queue.push(b"x")
        assert session.router.alone
        last.drop()
        rig.beside(after(0.5, last.listen))
        await queue.push(b"y")

    rig.use(use)
    assert len(cluster.messages["q"]) == 2


def test_the_link_of_a_node_that_left_is_closed(rig: Rig, cluster: FakeCluster) -> None:
    async def use(session: ClientSession) -> None:
        router = session.router
        gone = router.link_to("n1")
        assert gone is not None
        await gone.call(wire.GetView(), (), time.monotonic() + 60)
        cluster.fail_over(cluster.nodes[1])
        await router.refresh_view("n0", time.monotonic() + 60)
        assert router.link_to("n1") is None
        with pytest.raises(errors.ConnectionLost):
            await gone.call(wire.GetView(), (), time.monotonic() + 60)
        await queue_of(session).push(b"x")

    rig.use(use)


def test_a_node_that_comes_back_elsewhere_is_found(rig: Rig, cluster: FakeCluster) -> None:
    node = cluster.nodes[1]

    async def use(session: ClientSession) -> None:
        before = session.router.link_to("n1")
        node.kill()
        node.port = 0
        node.listen()
        cluster.lead(node, *node.led())
        for _ in range(10):
            await queue_of(session).push(b"x")
        assert session.router.link_to("n1") is not before

    rig.use(use)
    assert node.requests(wire.Push)


def test_an_older_view_and_another_cluster_are_not_believed(rig: Rig, cluster: FakeCluster) -> None:
    async def use(session: ClientSession) -> None:
        router = session.router
        mine = router.view
        elsewhere = (ClusterNode("x", "127.0.0.1:1", "127.0.0.1:2"),)
        router.adopt(ClusterView(mine.cluster, PARTITIONS, elsewhere, mine.version - 1))
        assert router.view is mine
        router.adopt(ClusterView("another", PARTITIONS, elsewhere, mine.version + 9))
        assert router.view is mine

    rig.use(use)


def test_many_callers_share_one_look(cluster: FakeCluster) -> None:
    """Sixteen threads meet the same move; the refusing node is queried only a few times."""
    cluster.lead(cluster.nodes[0], *range(PARTITIONS))
    discovery = cluster.discovery()
    cluster.lead(cluster.nodes[2], *range(PARTITIONS))
    rig = Rig("blocking", cluster)

    def use_all(session: ClientSession) -> None:
        def push() -> None:
            from weft.client.transport.blocking_link import run

            run(queue_of(session).push(b"x"))

        threads = [threading.Thread(target=push) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def use(session: ClientSession) -> None:
        use_all(session)

    rig.use(use, discovery)
    assert len(cluster.messages["q"]) == 16
    assert len(cluster.nodes[0].requests(wire.GetView)) < 8


# --- the seeds --------------------------------------------------------------------------------


class Seed(weft_pb2_grpc.ClusterServicer):
    """A node's gRPC port, for its view alone."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def View(self, request: object, context: object) -> weft_pb2.ViewResponse:
        with self._cluster.lock:
            return grpc_translation.view(self._cluster.view())


@contextmanager
def seed(cluster: FakeCluster) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    weft_pb2_grpc.add_ClusterServicer_to_server(Seed(cluster), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def test_dead_seeds_are_skipped_and_what_is_found_takes_their_place(
    cluster: FakeCluster,
) -> None:
    with seed(cluster) as alive:
        discovery = Discovery(["127.0.0.1:1", "127.0.0.1:2", alive])
        view = discovery.find(10)
        assert [node.id for node in view.nodes] == ["n0", "n1", "n2"]
        assert list(view.primaries) == [p % 3 for p in range(PARTITIONS)]
        found = [node.grpc for node in view.nodes]
        assert discovery.places() == [*found, "127.0.0.1:1", "127.0.0.1:2", alive]


def test_when_no_link_answers_the_seeds_are_asked(rig: Rig, cluster: FakeCluster) -> None:
    """All nodes returned on other ports."""

    async def use(session: ClientSession) -> None:
        queue = queue_of(session)
        await queue.push(b"x")
        for node in cluster.nodes:
            node.kill()
            node.port = 0
            node.listen()
        cluster.lead(cluster.nodes[0], 0)
        await queue.push(b"y")
        assert session.router.view.version == cluster.version

    with seed(cluster) as alive:
        discovery = Discovery([alive])
        discovery.find(10)
        rig.use(use, discovery)
    assert len(cluster.messages["q"]) == 2
