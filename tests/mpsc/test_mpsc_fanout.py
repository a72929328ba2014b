"""Messages of a real node's queue to receivers in this process: shares, leases, and returns."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import weft
import weft.testing
from weft.mpsc import InProcessWindow, Segments
from weft.mpsc.fanout import Fanout
from weft.mpsc.fanout_ring import OVER, FanReader, FanWriter, segment_bytes

pytestmark = pytest.mark.process
RECEIVERS, RING_BYTES = 3, 4096


@pytest.fixture(scope="module")
def client() -> Iterator[weft.Client]:
    with weft.testing.cluster(nodes=1) as cluster:
        yield cluster.client()


def make(queue: weft.Queue, ahead: int) -> tuple[Fanout, list[FanReader]]:
    sizes = [segment_bytes(RECEIVERS, RING_BYTES, rank == 0) for rank in range(RECEIVERS + 1)]
    segments = Segments(sizes)
    windows = [InProcessWindow(segments, rank) for rank in range(RECEIVERS + 1)]
    numbers = range(RECEIVERS)
    writers = [FanWriter(windows[0], number + 1, number, RING_BYTES) for number in numbers]
    readers = [FanReader(windows[number + 1], 0, number, RING_BYTES) for number in numbers]
    return Fanout(queue, writers, ahead), readers


def queue_of(client: weft.Client, name: str, bodies: list[bytes], lease_ms: int) -> weft.Queue:
    client.create_queue(name, lease_ms=lease_ms)
    queue = client.queue(name)
    queue.push_many(bodies)
    return queue


def waiting(queue: weft.Queue) -> tuple[int, int]:
    stats = queue.stats()
    return stats.ready, stats.leased


def test_receivers_share_and_hold_no_more_than_they_may(client: weft.Client) -> None:
    queue = queue_of(client, "shared", [b"%d" % at for at in range(10)], 60_000)
    fanout, readers = make(queue, ahead=2)
    assert fanout.feed(wait_ms=0) == 6
    assert fanout.feed(wait_ms=0) == 0
    taken = [reader.take() for reader in readers]
    assert [len(bodies) for bodies in taken] == [2, 2, 2]
    assert waiting(queue) == (4, 6)
    readers[0].done(2)
    readers[1].done(1)
    fanout.settle(fanout.collect())
    assert fanout.done == 3
    assert waiting(queue) == (4, 3), "what is done is acknowledged"
    assert fanout.feed(wait_ms=0) == 3
    assert [len(reader.take()) for reader in readers] == [2, 1, 0]


def test_leases_are_renewed_while_receivers_work(client: weft.Client) -> None:
    queue = queue_of(client, "renewed", [b"slow"], lease_ms=3000)
    fanout, readers = make(queue, ahead=1)
    fanout.feed(wait_ms=0)
    assert [reader.take() for reader in readers] == [[b"slow"], [], []]
    end = time.monotonic() + 4
    while time.monotonic() < end:
        fanout.settle(fanout.collect())
        assert fanout.feed(wait_ms=0) == 0, "it was not delivered again"
        time.sleep(0.02)
    readers[0].done(1)
    fanout.settle(fanout.collect())
    assert (fanout.late, waiting(queue)) == (0, (0, 0))


def test_a_lease_that_ended_is_counted_and_its_message_comes_again(client: weft.Client) -> None:
    queue = queue_of(client, "late", [b"late"], lease_ms=200)
    fanout, readers = make(queue, ahead=1)
    fanout.feed(wait_ms=0)
    assert readers[0].take() == [b"late"]
    time.sleep(0.5)
    readers[0].done(1)
    fanout.settle(fanout.collect())
    assert fanout.late == 1
    assert fanout.feed(wait_ms=60_000) == 1
    assert any(reader.take() == [b"late"] for reader in readers)


def test_what_the_dead_and_the_gone_had_goes_to_others(client: weft.Client) -> None:
    queue = queue_of(client, "returned", [b"%d" % at for at in range(6)], 60_000)
    fanout, readers = make(queue, ahead=2)
    fanout.feed(wait_ms=0)
    first, second, third = (reader.take() for reader in readers)
    readers[0].done(1)
    fanout.abandon(1)
    readers[1].close()
    readers[2].done(2)
    fanout.settle(fanout.collect())
    assert fanout.receivers == 1
    assert waiting(queue) == (3, 0)
    fanout.feed(wait_ms=0)
    assert set(readers[2].take()) <= {first[1], *second}
    fanout.end(OVER)
    assert readers[2].state() == OVER
    assert third


def test_a_message_that_fits_no_ring_is_returned_and_the_others_go_on(client: weft.Client) -> None:
    queue = queue_of(client, "large", [bytes(RING_BYTES), bytes(RING_BYTES - 8), b"small"], 60_000)
    fanout, readers = make(queue, ahead=2)
    while fanout.feed(wait_ms=0):
        fanout.settle(fanout.collect())
    got = sorted(len(body) for reader in readers for body in reader.take())
    assert got == [5, RING_BYTES - 8], "the largest message that fits is delivered"
    assert fanout.refused == 1
    assert queue.stats().leased == 2
    fanout.end(OVER)


def test_what_a_rank_was_done_with_comes_back_if_its_answers_are_lost(client: weft.Client) -> None:
    queue = queue_of(client, "unanswered", [b"a", b"b"], 60_000)
    fanout, readers = make(queue, ahead=1)
    fanout.feed(wait_ms=0)
    for reader in readers[:2]:
        assert reader.take()
        reader.done(1)
    fanout.settle(fanout.collect(), lost_ranks={1})
    assert fanout.done == 1
    assert waiting(queue) == (1, 0)
