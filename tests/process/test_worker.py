"""The worker loop against a real node: outcomes, retries, time limits, drains, signals."""

from __future__ import annotations

import asyncio
import functools
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

import weft
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process
_names = count()
SOON = weft.expo(0.01, 0.02)


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster() as node:
        yield node


@pytest.fixture
def client(node: Cluster) -> Iterator[weft.Client]:
    with node.client() as client:
        yield client


@pytest.fixture
def queue(client: weft.Client) -> weft.Queue:
    """A lease outlasts a pause of this process on a busy machine; a test of leases sets its own."""
    name = f"work-{next(_names)}"
    client.create_queue(name, lease_ms=30_000, max_deliveries=5, dead_letter=f"{name}.dead")
    return client.queue(name)


def dead(client: weft.Client, queue: weft.Queue) -> dict[bytes, str]:
    return {each.body: each.dead_reason for each in client.queue(f"{queue.name}.dead").peek(1000)}


@pytest.mark.parametrize(("concurrency", "total"), [(1, 200), (8, 1_000), (64, 1_000)])
def test_every_message_is_handled_and_acked(
    queue: weft.Queue, concurrency: int, total: int
) -> None:
    """One handler refills its prefetch of one message, and writes to the disk, for each message."""
    bodies = [b"%d" % number for number in range(total)]
    queue.push_many(bodies)
    seen: list[bytes] = []
    stats = queue.work(lambda m: seen.append(m.body), concurrency=concurrency, idle_ms=300)
    assert sorted(seen) == sorted(bodies)
    assert (stats.started, stats.succeeded, stats.in_flight) == (total, total, 0)
    assert queue.stats().acked == total
    assert f"{total} succeeded" in stats.summary()
    assert f'weft_worker_in_flight{{queue="{queue.name}"}} 0' in stats.prometheus()


def test_what_becomes_of_failures(client: weft.Client, queue: weft.Queue) -> None:
    queue.push_many([b"fails", b"rejected", b"once", b"acks", b"nacks"])
    tries: Counter[bytes] = Counter()
    errors: list[tuple[bytes, BaseException]] = []

    def handle(message: weft.Message) -> None:
        tries[message.body] += 1
        if message.body == b"fails":
            raise ValueError("no")
        if message.body == b"rejected":
            raise weft.Reject("not an order")
        if message.body == b"once" and tries[b"once"] == 1:
            raise weft.RetryLater(0.05)
        if message.body == b"acks":
            message.ack()
        if message.body == b"nacks" and tries[b"nacks"] == 1:
            message.nack()

    stats = queue.work(
        handle, retry=weft.Retry(attempts=3, backoff=SOON), idle_ms=1_000,
        on_error=lambda message, error: errors.append((message.body, error)),
    )  # fmt: skip
    assert tries == {b"fails": 3, b"rejected": 1, b"once": 2, b"acks": 1, b"nacks": 2}
    assert dead(client, queue) == {
        b"fails": "3 deliveries, the last one rejected: ValueError: no",
        b"rejected": "1 deliveries, the last one rejected: not an order",
    }
    assert (stats.dead, stats.retried) == (2, 3)
    assert Counter(body for body, _ in errors) == {b"fails": 3, b"rejected": 1, b"once": 1}
    assert queue.stats().ready == 0


def test_a_handler_slower_than_its_lease_keeps_it(client: weft.Client, queue: weft.Queue) -> None:
    client.update_queue(queue.name, lease_ms=3_000)
    queue.push(b"slow")
    seen: list[int] = []

    def handle(message: weft.Message) -> None:
        time.sleep(4.5)
        seen.append(message.deliveries)

    stats = queue.work(handle, idle_ms=500)
    assert seen == [1]
    assert (stats.succeeded, stats.lost) == (1, 0)


def test_a_handler_past_its_time_limit_is_abandoned(queue: weft.Queue) -> None:
    queue.push(b"stuck")
    release = threading.Event()
    tries: list[int] = []

    def handle(message: weft.Message) -> None:
        tries.append(message.deliveries)
        if len(tries) == 1:
            release.wait(100)

    try:
        stats = queue.work(
            handle, concurrency=2, time_limit_s=0.3, retry=weft.Retry(5, SOON), idle_ms=1_000
        )
    finally:
        release.set()
    assert tries == [1, 2]
    assert (stats.timed_out, stats.abandoned, stats.succeeded) == (1, 1, 1)


def test_too_many_abandoned_handlers_end_the_worker(queue: weft.Queue) -> None:
    queue.push_many([b"a", b"b", b"c"])
    release = threading.Event()
    try:
        with pytest.raises(weft.DeadlineExceeded, match="restart this process"):
            queue.work(lambda message: release.wait(100), concurrency=2, time_limit_s=0.2)
    finally:
        release.set()


def test_a_handler_that_exits_ends_the_worker(queue: weft.Queue) -> None:
    queue.push(b"a")

    def handle(message: weft.Message) -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        queue.work(handle)
    assert queue.stats().ready == 1


def test_an_on_error_that_exits_ends_the_worker(queue: weft.Queue) -> None:
    """The exit left the event loop's thread, and `work` waited for ever."""
    queue.push(b"a")

    def handle(message: weft.Message) -> None:
        raise ValueError("no")

    with pytest.raises(SystemExit):
        queue.work(handle, on_error=lambda message, error: sys.exit(3), retry=weft.Retry(5, SOON))
    assert queue.stats().ready + queue.stats().delayed == 1


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_a_broken_backoff_or_error_does_not_keep_the_message(queue: weft.Queue) -> None:
    """The message stayed leased, and the client renewed the lease for an hour."""
    queue.push_many([b"backoff", b"text"])

    def backoff(attempt: int) -> float:
        return float("nan")

    def handle(message: weft.Message) -> None:
        if message.deliveries == 1:
            raise ValueError("no") if message.body == b"backoff" else Unprintable

    stats = queue.work(handle, retry=weft.Retry(5, backoff), idle_ms=3_000)
    assert (stats.retried, stats.succeeded, stats.in_flight) == (2, 2, 0)


def test_a_handler_whose_body_never_runs_acks_nothing(queue: weft.Queue) -> None:
    """`async def` or `yield` in a synchronous worker acked every message unprocessed."""
    queue.push(b"a")

    async def coroutine(*arguments: object) -> None: ...

    def generator(message: weft.Message) -> Iterator[int]:
        yield 1

    class Handler:
        async def __call__(self, message: weft.Message) -> None: ...

    for handler in (coroutine, generator, Handler(), functools.partial(coroutine)):
        with pytest.raises(weft.InvalidArgument, match=r"^handler must be a plain function"):
            queue.work(handler)
    with pytest.raises(weft.InvalidArgument, match=r"^on_error must be a plain function"):
        queue.work(lambda message: None, on_error=coroutine)
    errors: list[BaseException] = []
    for hidden in (coroutine, generator):
        stats = queue.work(
            lambda message: hidden(message),  # noqa: B023
            retry=weft.Retry(5, SOON), idle_ms=500,
            on_error=lambda message, error: errors.append(error),
        )  # fmt: skip
        assert stats.succeeded == 0
    assert "whose body never ran" in str(errors[0])
    assert queue.stats().acked == 0


def test_a_lost_lease_is_reported(client: weft.Client, queue: weft.Queue) -> None:
    client.update_queue(queue.name, lease_ms=1_000)
    queue.push(b"a")
    errors: list[BaseException] = []

    def handle(message: weft.Message) -> None:
        queue.purge()
        time.sleep(1)  # a renewal detects the purge

    stats = queue.work(handle, idle_ms=300, on_error=lambda _, error: errors.append(error))
    assert isinstance(errors[0], weft.LeaseLost)
    assert stats.lost == 1


def test_an_ack_that_came_too_late_is_no_success(queue: weft.Queue) -> None:
    queue.push(b"a")
    stats = queue.work(lambda message: queue.purge(), idle_ms=300)
    assert (stats.started, stats.succeeded, stats.lost) == (1, 0, 1)


def test_stop_gives_back_what_no_handler_got(queue: weft.Queue) -> None:
    queue.push_many([b"%d" % number for number in range(20)])
    worker = queue.worker(lambda message: time.sleep(0.3), concurrency=2)
    threading.Timer(0.5, worker.stop).start()
    stats = worker.run()
    assert stats.succeeded == stats.started < 20
    rest = queue.pop_many(100)
    assert len(rest) == 20 - stats.succeeded
    assert {message.deliveries for message in rest} == {1}


def test_an_ordered_queue_keeps_its_order_through_retries(client: weft.Client) -> None:
    client.create_queue("work-line", ordered=True, lease_ms=30_000)
    line = client.queue("work-line")
    line.push_many([b"%d" % number for number in range(5)])
    seen: list[bytes] = []

    def handle(message: weft.Message) -> None:
        if message.body == b"2" and message.deliveries < 3:
            raise ValueError("not yet")
        seen.append(message.body)

    line.work(handle, concurrency=1, prefetch=1, retry=weft.Retry(5, SOON), idle_ms=500)
    assert seen == [b"0", b"1", b"2", b"3", b"4"]


PROGRAM = """
import sys, time, weft
def handle(message):
    print("began", flush=True)
    time.sleep(float(sys.argv[3]))
    print("ended", flush=True)
with weft.connect(sys.argv[1]) as client:
    print(client.queue(sys.argv[2]).work(handle, concurrency=1, drain_s=100).succeeded, flush=True)
"""


@pytest.mark.parametrize(("takes_s", "signals"), [(1.5, 1), (100, 2)])
def test_signals_drain_and_then_end(
    node: Cluster, queue: weft.Queue, takes_s: float, signals: int
) -> None:
    queue.push_many([b"a", b"b"])
    program = [sys.executable, "-c", PROGRAM, node.servers[0], queue.name, str(takes_s)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
        said = process.stdout.read()
        assert process.wait(100) == 0
    assert said == ("ended\n1\n" if signals == 1 else "0\n")
    assert queue.stats().ready == (1 if signals == 1 else 2)


async def test_asyncio_handlers(node: Cluster, client: weft.Client, queue: weft.Queue) -> None:
    queue.push_many([b"%d" % number for number in range(1_000)])
    queue.push_many([b"slow", b"fails"])
    running = most = 0
    tries: Counter[bytes] = Counter()

    async def handle(message: weft.aio.Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            tries[message.body] += 1
            if message.body == b"slow" and tries[b"slow"] == 1:
                await asyncio.sleep(100)
            if message.body == b"fails":
                raise ValueError("no")
            await asyncio.sleep(0.001)
        finally:
            running -= 1

    before = signal.getsignal(signal.SIGTERM)
    async with weft.aio.connect(node.servers) as other:
        stats = await other.queue(queue.name).work(
            handle, concurrency=64, time_limit_s=3, retry=weft.Retry(3, SOON), idle_ms=5_000
        )
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(tries) == 1_002
    assert 1 < most <= 64
    assert (stats.succeeded, stats.timed_out, stats.abandoned, stats.dead) == (1_001, 1, 0, 1)
    assert list(dead(client, queue)) == [b"fails"]


async def test_a_cancelled_worker_gives_its_messages_back(node: Cluster, queue: weft.Queue) -> None:
    queue.push_many([b"a", b"b"])
    began = asyncio.Event()

    async def handle(message: weft.aio.Message) -> None:
        began.set()
        await asyncio.sleep(100)

    async with weft.aio.connect(node.servers) as other:
        work = asyncio.ensure_future(other.queue(queue.name).work(handle))
        await asyncio.wait_for(began.wait(), 60)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert queue.stats().ready == 2


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"time_limit_s": 0}, {"retry": 5}, {"drain_s": -1}]
)
def test_wrong_options_are_named(queue: weft.Queue, wrong: dict[str, int]) -> None:
    with pytest.raises(weft.InvalidArgument, match=next(iter(wrong))):
        queue.work(lambda message: None, **wrong)  # type: ignore[arg-type]
