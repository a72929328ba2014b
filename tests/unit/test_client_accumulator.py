"""The producer's accumulator: limits by count, bytes and options; and its error reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from weft import errors
from weft.client.producer.accumulator import BUFFERS_MAX, WRITTEN_MAX, Accumulator, ProducerOptions
from weft.client.producer.batch import Encoded
from weft.client.producer.batch_buffer import PushOptions
from weft.client.routing.cluster_view import ClusterNode, ClusterView
from weft.client.routing.discovery import Discovery
from weft.client.routing.router import Router
from weft.client.routing.session import ClientSession
from weft.client.transport.link import Answered, Asked, NodeAddress, OpenLink
from weft.client.transport.runtime import AsyncRuntime
from weft.proto import wire


class Store:
    """A link to a node that stores batches, or fails."""

    breaks = 0
    quiet = True
    fail_fast = False

    def __init__(self) -> None:
        self.batches: list[tuple[wire.Push, wire.Payload]] = []
        self.failure: wire.Failure | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_once = self.at_once_most = 0

    async def call(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float
    ) -> Answered:
        assert isinstance(request, wire.Push)
        self.at_once += 1
        self.at_once_most = max(self.at_once, self.at_once_most)
        await self.gate.wait()
        self.at_once -= 1
        if self.failure is not None:
            return self.failure, ()
        self.batches.append((request, wire.decode_payload(payload[0])))
        push = request
        return wire.Pushed(1, push.producer, push.batch, push.count, False, "disk"), ()

    async def call_all(self, asked: Sequence[Asked], deadline: float) -> list[Answered | Exception]:
        return [await self.call(request, payload, deadline) for request, payload in asked]

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def close(self, *, retired: bool = False) -> None:
        pass


class ToStore(AsyncRuntime):
    """Connects every address to the store."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def open(self, place: NodeAddress) -> OpenLink:
        return self._store


class Rig:
    def __init__(self, **options: float) -> None:
        self.store = Store()
        self.changed = asyncio.Event()
        discovery = Discovery(["127.0.0.1:1"])
        discovery.view = ClusterView(
            "cluster", 256, (ClusterNode("n", "127.0.0.1:1", "127.0.0.1:2"),)
        )
        session = ClientSession(Router(ToStore(self.store), discovery))
        made = ProducerOptions(**options)  # type: ignore[arg-type]
        self.accumulator = Accumulator(session, "q", made, lambda f, *a: f(*a), self.changed.set)

    async def settle(self) -> None:
        while self.accumulator.busy:
            self.changed.clear()
            await self.changed.wait()

    def bodies(self) -> list[list[bytes]]:
        return [payload.bodies for _, payload in self.store.batches]


async def test_a_batch_leaves_when_it_is_full_by_count() -> None:
    rig = Rig(batch_count=3, linger_ms=60_000)
    for n in range(7):
        rig.accumulator.put(b"%d" % n)
    await rig.settle()
    assert rig.bodies() == [[b"0", b"1", b"2"], [b"3", b"4", b"5"]]
    rig.accumulator.flush()
    await rig.settle()
    assert rig.bodies()[2:] == [[b"6"]]


async def test_a_batch_leaves_when_it_is_full_by_bytes() -> None:
    rig = Rig(batch_bytes=10, linger_ms=60_000)
    for body in (b"12345", b"12345", b"1"):
        rig.accumulator.put(body)
    await rig.settle()
    assert rig.bodies() == [[b"12345", b"12345"]]


async def test_a_batch_leaves_when_it_has_waited() -> None:
    rig = Rig(linger_ms=10)
    rig.accumulator.put(b"a")
    assert not rig.accumulator.busy
    for _ in range(10_000):
        await asyncio.sleep(0.01)
        if rig.store.batches:
            break
    assert rig.bodies() == [[b"a"]]
    rig.accumulator.put(b"b")
    for _ in range(10_000):
        await asyncio.sleep(0.01)
        if len(rig.store.batches) == 2:
            break
    assert rig.bodies() == [[b"a"], [b"b"]]


async def test_messages_of_other_options_go_in_batches_of_their_own() -> None:
    rig = Rig()
    rig.accumulator.put(b"plain")
    rig.accumulator.add(b"late", None, None, PushOptions(delay_ms=5))
    rig.accumulator.add(b"keyed", {"h": "v"}, "k", PushOptions())
    rig.accumulator.put(b"more")
    rig.accumulator.flush()
    await rig.settle()
    pushed = {push.delay_ms: payload for push, payload in rig.store.batches}
    assert pushed[5] == wire.Payload([b"late"])
    assert pushed[0] == wire.Payload([b"plain", b"keyed", b"more"], [None, {"h": "v"}, None],
                                     [None, "k", None])  # fmt: skip


async def test_many_different_options_are_bounded() -> None:
    rig = Rig(linger_ms=60_000)
    for n in range(3 * BUFFERS_MAX):
        rig.accumulator.add(b"x", None, None, PushOptions(delay_ms=n))
    assert len(rig.accumulator._buffers) <= BUFFERS_MAX
    rig.accumulator.flush()
    await rig.settle()
    assert sorted(push.delay_ms for push, _ in rig.store.batches) == list(range(3 * BUFFERS_MAX))


async def test_many_bodies_are_cut_into_batches() -> None:
    rig = Rig(batch_count=10)
    for part, size in rig.accumulator.parts([b"x"] * 25, 25):
        rig.accumulator.put_many(part, size)
    assert list(rig.accumulator.parts([], 0)) == []
    rig.accumulator.flush()
    await rig.settle()
    assert [len(bodies) for bodies in rig.bodies()] == [10, 10, 5]


async def test_a_written_batch_goes_after_what_was_gathered_before() -> None:
    rig = Rig(batch_count=20, linger_ms=60_000)
    even = [b"%04d" % n for n in range(40)]
    rig.accumulator.put(b"first")
    for written in rig.accumulator.written(list(even)):
        rig.accumulator.put_batch(written)
    rig.accumulator.put(b"last")
    rig.accumulator.flush()
    await rig.settle()
    assert rig.bodies() == [[b"first"], even[:20], even[20:], [b"last"]]
    rig.store.failure = wire.Failure("QUEUE_NOT_FOUND", "no queue q", False)
    rig.accumulator.put_batch(rig.accumulator.written(even[:20])[0])
    await rig.settle()
    failure = rig.accumulator.take_failure()
    assert failure is not None
    assert "20 messages" in failure.message


async def test_only_whole_even_batches_are_written_at_once() -> None:
    accumulator = Rig(batch_count=20, batch_bytes=200).accumulator
    assert len(accumulator.written([b"four"] * 40)) == 2
    for other in (
        [],
        [b"four"] * 19,
        [b"four"] * 41,
        tuple([b"four"] * 20),
        [b"four"] * 39 + [b"five!"],
        [b"eleven....!"] * 20,  # too many bytes
        [b"x"] * 20 * (WRITTEN_MAX + 1),
    ):
        assert accumulator.written(other) == []


async def test_no_more_than_in_flight_are_under_way() -> None:
    rig = Rig(batch_count=1, in_flight=3)
    rig.store.gate.clear()
    for _ in range(10):
        rig.accumulator.put(b"x")
    await asyncio.sleep(0.01)
    assert rig.store.at_once == 3
    rig.store.gate.set()
    await rig.settle()
    assert rig.store.at_once_most == 3
    assert len(rig.store.batches) == 10


async def test_it_says_when_callers_are_too_far_ahead() -> None:
    rig = Rig(batch_count=1, buffer_bytes=10)
    rig.store.gate.clear()
    rig.accumulator.put(b"12345678")
    assert not rig.accumulator.attention
    rig.accumulator.put(b"12345678")
    assert rig.accumulator.overfull
    assert rig.accumulator.attention
    rig.store.gate.set()
    await rig.settle()
    assert not rig.accumulator.attention


async def test_who_waits_is_told_once_when_a_quarter_of_the_buffer_is_free() -> None:
    rig = Rig(batch_count=1, buffer_bytes=1000, in_flight=1)
    rig.store.gate.clear()
    while not rig.accumulator.overfull:
        rig.accumulator.put(bytes(80))
    told: list[int] = []
    rig.accumulator._on_change = lambda: told.append(rig.accumulator._pending_bytes)
    rig.store.gate.set()
    while rig.accumulator.busy:
        await asyncio.sleep(0)
        assert rig.accumulator.overfull == (rig.accumulator._pending_bytes > 750)
    assert len(told) == 2, "when there is room, and when all is stored"
    assert 650 < told[0] <= 750
    assert told[1] == 0


async def test_the_loop_is_called_only_when_it_has_room() -> None:
    rig = Rig(batch_count=1, in_flight=2)
    rig.store.gate.clear()
    calls: list[Callable[[], None]] = []
    rig.accumulator._post = lambda call: calls.append(call)
    for _ in range(3):
        rig.accumulator.put(b"x")
    assert len(calls) == 1, "it has been called, and has not come"
    calls[0]()
    await asyncio.sleep(0)
    for _ in range(3):
        rig.accumulator.put(b"x")
    assert len(calls) == 1, "it is full: the end of a push makes it look"
    rig.store.gate.set()
    await rig.settle()
    assert len(rig.store.batches) == 6
    rig.accumulator.put(b"x")
    assert len(calls) == 2
    calls[1]()
    await rig.settle()
    assert len(rig.store.batches) == 7


async def test_failures_are_counted_and_told_once() -> None:
    rig = Rig(batch_count=2)
    rig.store.failure = wire.Failure("QUEUE_NOT_FOUND", "no queue q", False)
    for _ in range(4):
        rig.accumulator.put(b"x")
    await rig.settle()
    assert rig.accumulator.attention
    failure = rig.accumulator.take_failure()
    assert isinstance(failure, errors.QueueNotFound)
    assert "4 messages sent to q" in failure.message
    assert "no queue q" in failure.message
    assert rig.accumulator.take_failure() is None
    assert not rig.accumulator.attention


async def test_a_closed_outbox_sends_the_rest_and_takes_no_more() -> None:
    rig = Rig(linger_ms=60_000)
    rig.accumulator.put(b"x")
    rig.accumulator.close()
    await rig.settle()
    assert rig.bodies() == [[b"x"]]
    for _ in range(2):
        with pytest.raises(errors.UsageError, match="closed"):
            rig.accumulator.put(b"y")
        with pytest.raises(errors.UsageError, match="closed"):
            rig.accumulator.put_many([b"y", b"z"], 2)
        with pytest.raises(errors.UsageError, match="closed"):
            rig.accumulator.add(b"y", None, None, PushOptions(priority=1))
        with pytest.raises(errors.UsageError, match="closed"):
            rig.accumulator.put_batch(Encoded(1, b"y"))
    assert not rig.accumulator.busy


@pytest.mark.parametrize(
    "wrong", [{"linger_ms": -1}, {"batch_count": 0}, {"batch_bytes": 1 << 40}, {"in_flight": 0}]
)
def test_options_have_ranges(wrong: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidArgument, match=next(iter(wrong))):
        ProducerOptions(**wrong)
