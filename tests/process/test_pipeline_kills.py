"""Pipelines over three real nodes of which one is killed at the worst moment.

Totals are exact, and nothing is left reserved or staged.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import weft
from weft.testing import Cluster, cluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

#: Far more than a failover takes, on a busy machine.
PATIENT_MS = 100_000


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(3) as nodes:
        yield nodes


@pytest.fixture
def three(nodes: Cluster) -> Cluster:
    """All three nodes, running again after the previous test."""
    for number in range(3):
        if not nodes.node(number).running:
            nodes.start(number)
    nodes.settled()
    return nodes


@pytest.fixture
def client(three: Cluster) -> Iterator[weft.Client]:
    with weft.connect(three.servers, timeout_ms=PATIENT_MS) as client:
        yield client


def rows(sub: weft.Subscription, made: weft.Reservation) -> list[bytes]:
    found: list[bytes] = []
    for part in made.slices:
        start = 0
        while start < part.messages:
            batch = sub.read(made.number, part, start)
            found += batch.bodies
            start = batch.end
    assert len(found) == made.messages
    return found


def kill_during(nodes: Cluster, number: int, work: Callable[[], object], after_s: float) -> None:
    """Kill a node during `work`, and restart it after the time of a failover."""

    def strike() -> None:
        time.sleep(after_s)
        nodes.kill(number)
        time.sleep(2)
        nodes.start(number)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        work()
    finally:
        thread.join()


def nothing_is_left(client: weft.Client, name: str, seconds: float = 100) -> None:
    """Wait until late marks and stages are cleaned up, which takes a moment."""
    end = time.monotonic() + seconds
    while True:
        stats = client.queue(name).stats()
        if not stats.reserved + stats.staged + stats.leased:
            return
        assert time.monotonic() < end, stats
        time.sleep(0.2)


def test_a_node_dies_while_messages_are_reserved_read_and_acked(
    three: Cluster, client: weft.Client
) -> None:
    name = "clicks"
    client.create_queue(name)
    bodies = [b"%d" % number for number in range(6000)]
    for start in range(0, 6000, 50):
        client.queue(name).push_many(bodies[start : start + 50])
    seen: dict[int, list[bytes]] = {}
    sub = client.subscription(name, "hits")
    sub.open()

    def read(last: int) -> None:
        number = max(seen, default=0)
        while number < last:
            sub.ack_through(number)
            made = sub.reserve(number + 1, max_messages=250)
            if made is None:
                return
            number += 1
            seen[number] = rows(sub, made)
            assert sub.reserve(number) == made
            assert rows(sub, made) == seen[number]  # again, on whichever node leads now

    kill_during(three, 0, lambda: read(10), 0.05)
    kill_during(three, 1, lambda: read(100), 0.2)
    sub.ack_through(max(seen))
    counted = Counter(body for found in seen.values() for body in found)
    assert counted == Counter(bodies)
    nothing_is_left(client, name)
    assert client.queue(name).stats().ready == 0


def test_a_driver_that_died_after_reserving_is_given_the_same_rows_after_a_restart_of_all(
    three: Cluster, client: weft.Client
) -> None:
    name = "restarted"
    client.create_queue(name)
    client.queue(name).push_many([b"%d" % number for number in range(500)])
    first = client.subscription(name, "hits")
    first.open()
    made = first.reserve(1, max_messages=300)
    assert made is not None
    before = rows(first, made)
    stage = client.stage(name, "app", 0, 0, 0)
    stage.push_many([b"staged"] * 100)
    stage.close()
    for number in range(3):
        three.kill(number)
    for number in range(3):
        three.start(number)
    three.settled()
    with weft.connect(three.servers, timeout_ms=PATIENT_MS) as late:
        second = late.subscription(name, "hits")
        second.open()
        assert second.reserve(1) == made
        assert rows(second, made) == before
        assert late.publish(name, "app", 0, [(0, 0)]).messages == 100
        assert late.publish(name, "app", 0, [(0, 0)]) == weft.Published(100, True)
        second.ack_through(1)
        rest = second.reserve(2)
        assert rest is not None
        assert rest.messages == 300
        second.ack_through(2)
        nothing_is_left(late, name)


def test_a_node_dies_while_batches_are_published(three: Cluster, client: weft.Client) -> None:
    name = "counts"
    client.create_queue(name)
    published: list[bytes] = []

    def write(first: int, last: int) -> None:
        for batch in range(first, last):
            winners = []
            for part in range(3):
                loser = client.stage(name, "app", batch, part, 0)
                loser.push_many([b"loser"] * 20)
                winner = client.stage(name, "app", batch, part, 1)
                own = [b"%d.%d.%d" % (batch, part, index) for index in range(60)]
                for start in range(0, 60, 20):
                    winner.push_many(own[start : start + 20])
                winner.close()
                winners.append(winner.winner)
                published.extend(own)
            done = client.publish(name, "app", batch, winners)
            assert done.messages == 180
            assert client.last_published(name, "app") == batch

    kill_during(three, 2, lambda: write(0, 5), 0.1)
    assert client.abort(name, "app", 3) == 0  # published, and final
    nothing_is_left(client, name)
    sub = client.subscription(name, "audit")
    sub.open()
    made = sub.reserve(1)
    assert made is not None
    assert Counter(rows(sub, made)) == Counter(published)
    sub.ack_through(1)
    nothing_is_left(client, name)


def test_reservations_and_stages_move_with_their_partitions(
    three: Cluster, client: weft.Client
) -> None:
    name = "moved"
    client.create_queue(name)
    for number in range(40):
        client.queue(name).push_many([b"%d.%d" % (number, index) for index in range(10)])
    sub = client.subscription(name, "hits")
    sub.open()
    made = sub.reserve(1, max_messages=200)
    assert made is not None
    before = rows(sub, made)
    stage = client.stage(name, "app", 0, 0, 0)
    for number in range(10):
        stage.push_many([b"s%d" % number] * 5)
    stage.close()
    new = three.add()
    three.settled()
    assert rows(sub, made) == before
    three.leave(new)
    three.settled()
    assert rows(sub, made) == before
    assert client.publish(name, "app", 0, [(0, 0)]).messages == 50
    sub.ack_through(1)
    rest = sub.reserve(2)
    assert rest is not None
    assert rest.messages == 250
    assert sub.release_all() == 250
    assert client.queue(name).stats().ready == 250
    assert client.delete_subscription(name, "hits") == 0
