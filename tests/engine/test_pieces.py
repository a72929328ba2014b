"""The engine's small parts, each compared with an obvious definition."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.proto import wire
from weft.server.engine import message_set
from weft.server.engine.batch import TouchedBatch, split
from weft.server.engine.head import Head, Part, decode, encode
from weft.server.engine.message_id_queue import (
    LSN_BITS,
    PARTITION_BITS,
    SIZE_BITS,
    STAMP_BITS,
    WHOLE,
    Handle,
    IdEntry,
    MessageIdQueue,
)
from weft.server.engine.state import Payloads
from weft.server.engine.timers import _SLACK, Timers

indexes = st.sets(st.integers(0, 4095), max_size=300)

# --- mask -------------------------------------------------------------------------------------


@given(indexes)
def test_runs_and_ranges_are_each_others_inverse(some: set[int]) -> None:
    bits = sum(1 << index for index in some)
    runs = list(message_set.runs(bits))
    assert message_set.of_ranges(runs) == bits
    assert {index for first, count in runs for index in range(first, first + count)} == some
    for (first, count), (following, _) in pairwise(runs):
        assert first + count < following, "runs are in order, and as long as they can be"


@given(st.integers(0, 4095), st.integers(1, 4096))
def test_a_range_is_one_run(first: int, count: int) -> None:
    assert list(message_set.runs(message_set.of_range(first, count))) == [(first, count)]


# --- handle -----------------------------------------------------------------------------------

handles = st.tuples(
    st.integers(1, (1 << STAMP_BITS) - 1),
    st.integers(0, (1 << PARTITION_BITS) - 1),
    st.integers(1, (1 << LSN_BITS) - 1),
    st.integers(1, 4096),
    st.integers(0, (1 << SIZE_BITS) - 1),
)


@given(handles)
def test_a_handle_keeps_all_that_it_was_given(parts: tuple[int, int, int, int, int]) -> None:
    stamp, partition, lsn, count, size = parts
    packed = Handle.pack(*parts)
    assert Handle.stamp(packed) == stamp
    assert Handle.split_key(Handle.key(packed)) == (partition, lsn)
    assert Handle.key(packed) == Handle.key_of(partition, lsn)
    assert (Handle.count(packed), Handle.size(packed)) == (count, size)


@given(handles, handles)
def test_handles_sort_by_arrival(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    if left[0] != right[0]:
        assert (Handle.pack(*left) < Handle.pack(*right)) == (left[0] < right[0])


# --- batch ------------------------------------------------------------------------------------


def batch_of(count: int, size: int, parts: list[Part] | None = None) -> TouchedBatch:
    found = Head(1, 2, 3, count, size, 4, 0, None, parts or [Part(0, count, 1)])
    return TouchedBatch.load(0, 1, found)


@given(st.integers(1, 4096), st.integers(0, 8 << 20), st.data())
def test_shares_add_up_however_a_batch_is_cut(count: int, size: int, data: st.DataObject) -> None:
    batch = batch_of(count, size)
    inner = st.integers(1, max(1, count - 1))
    cuts = sorted(data.draw(st.sets(inner, max_size=10)) - {count})
    bounds = [0, *cuts, count]
    shares = [batch.share(a, b - a) for a, b in pairwise(bounds)]
    assert sum(shares) == size
    assert all(share >= 0 for share in shares)


states = st.tuples(st.integers(1, 2), st.integers(0, 1), st.sampled_from([0, 9]))


@given(st.lists(st.one_of(st.none(), states), min_size=1, max_size=60))
def test_a_stored_head_is_the_shortest_that_says_the_same(
    each: list[tuple[int, int, int] | None],
) -> None:
    """One part per message in, as few parts as possible out, the same messages read back."""
    parts = [Part(i, 1, *state) for i, state in enumerate(each) if state is not None]
    batch = batch_of(len(each), 100, parts)
    batch.parts = {part.first: part for part in reversed(parts)}
    stored = batch.stored()
    spread = [
        (index, part.queue, part.deliveries, part.due)
        for part in stored.parts
        for index in range(part.first, part.first + part.count)
    ]
    assert spread == [(i, *state) for i, state in enumerate(each) if state is not None]
    changes = [
        i for i, state in enumerate(each) if state is not None and (i == 0 or each[i - 1] != state)
    ]
    assert [part.first for part in stored.parts] == changes
    assert decode(encode(stored)) == stored
    if stored.parts:
        assert TouchedBatch(batch.handle, stored).stored() == stored


@given(st.integers(2, 4096), st.data())
def test_a_split_loses_nothing(count: int, data: st.DataObject) -> None:
    part = Part(5, count, 1, 2, 3, "reason", "origin")
    at = data.draw(st.integers(1, count - 1))
    left, right = split(part, at)
    assert (left.first, left.count, right.first, right.count) == (5, at, 5 + at, count - at)
    for piece in (left, right):
        assert (piece.queue, piece.deliveries, piece.due) == (1, 2, 3)
        assert (piece.reason, piece.origin) == ("reason", "origin")


def test_a_batch_is_gone_when_nothing_is_left() -> None:
    batch = batch_of(3, 10)
    assert not batch.gone
    batch.parts.clear()
    assert batch.gone


# --- timers -----------------------------------------------------------------------------------

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(["set", "set", "clear", "fire"]), st.integers(0, 9),
              st.integers(0, 50)), max_size=120,
)  # fmt: skip


@given(steps)
def test_timers_fire_what_is_due_and_nothing_else(walk: list[Step]) -> None:
    timers = Timers()
    model: dict[int, int] = {}
    now = 0
    for what, key, value in walk:
        if what == "set":
            timers.set(key, now + value)
            model[key] = now + value
        elif what == "clear":
            timers.clear(key)
            model.pop(key, None)
        else:
            now += value
            due = {name for name, when in model.items() if when <= now}
            if due:
                upcoming = timers.next()
                assert upcoming is not None
                assert upcoming <= now, "a look at that time finds it"
            assert set(timers.fire(now, 1000)) == due
            model = {name: when for name, when in model.items() if name not in due}
        assert len(timers) == len(model)
        if model:
            upcoming = timers.next()
            assert upcoming is not None
            assert upcoming <= min(model.values()), "never later than the first that is alive"


def test_fired_in_order_and_no_more_than_asked_for() -> None:
    timers = Timers()
    for key in range(10):
        timers.set(key, 100 - key)
    assert timers.fire(1000, 3) == [9, 8, 7]
    assert timers.fire(1000, 100) == [6, 5, 4, 3, 2, 1, 0]
    assert timers.next() is None


def test_the_heap_follows_what_is_alive() -> None:
    timers = Timers()
    for key in range(10_000):  # long leases that are acked early
        timers.set(key, 10**9 + key)
        timers.clear(key)
        assert len(timers._heap) <= 2 * max(1, len(timers)) + _SLACK
    for when in range(10_000, 0, -1):  # one timer, moved earlier again and again
        timers.set(1, when)
        assert len(timers._heap) <= 2 * max(1, len(timers)) + _SLACK
    for when in range(10_000):  # and later: no new entry at all
        timers.set(1, 10_000 + when)
    assert len(timers._heap) <= 2 + _SLACK
    assert timers.fire(19_998, 10) == []
    assert timers.fire(19_999, 10) == [1]


# --- the MessageId queue ----------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["fresh", "returned", "delayed"])),
        max_size=60,
    ),
    st.integers(0, 60),
)
def test_entries_come_by_priority_and_then_by_arrival(
    pushes: list[tuple[int, str]], limit: int
) -> None:
    ids = MessageIdQueue()
    expected: list[tuple[int, IdEntry]] = []
    for number, (priority, how) in enumerate(pushes):
        packed = Handle.pack(number + 1, number % 7, number + 1, 5, 10)
        if how == "fresh":
            ids.add_fresh(priority, packed)
            expected.append((priority, IdEntry(packed, WHOLE)))
        elif how == "returned":
            for first in (3, 0):
                ids.add_returned(priority, IdEntry(packed, first))
                expected.append((priority, IdEntry(packed, first)))
        else:
            ids.add_delayed(number, priority, IdEntry(packed, WHOLE))
    while (due := ids.take_due(30)) is not None:
        ids.add_returned(*due)
        expected.append(due)
    expected.sort(key=lambda each: (-each[0], each[1]))
    in_order = [entry for _, entry in expected]
    assert ids.oldest() == (min(Handle.stamp(e.handle) for e in in_order) if in_order else 0)
    assert list(ids.peek(1000)) == in_order
    taken = [entry for _ in range(limit) if (entry := ids.take()) is not None]
    assert taken == in_order[:limit]
    late = sum(how == "delayed" and number > 30 for number, (_, how) in enumerate(pushes))
    assert len(list(ids.drain())) == len(in_order[limit:]) + late
    assert ids.take() is None
    assert ids.next_due() is None


def test_a_restart_may_find_batches_in_any_order() -> None:
    ids = MessageIdQueue()
    packed = [Handle.pack(stamp, stamp % 3, 1, 1, 1) for stamp in (5, 2, 9, 1)]
    ids.add_all_fresh(0, packed[:3])
    ids.add_all_fresh(0, packed[3:])
    assert Handle.totals(packed) == (4, 4)
    assert [entry.handle for entry in ids.peek(10)] == sorted(packed)


def test_taking_what_is_older_looks_at_every_list() -> None:
    ids = MessageIdQueue()
    for stamp, priority in ((5, 0), (1, 9), (7, 9)):
        ids.add_fresh(priority, Handle.pack(stamp, 0, stamp, 1, 1))
    ids.add_returned(0, IdEntry(Handle.pack(2, 0, 2, 4, 1), 3))
    taken = []
    while (entry := ids.take_older(6)) is not None:
        taken.append(Handle.stamp(entry.handle))
    assert sorted(taken) == [1, 2, 5]


# --- payloads ---------------------------------------------------------------------------------


def test_the_cache_holds_no_more_than_it_may() -> None:
    stored = {key: wire.encode(wire.Payload([b"%d" % key * 10, b"x"])) for key in range(1, 20)}
    read: list[int] = []

    def load(key: int) -> bytes:
        read.append(key)
        return stored[key]

    payloads = Payloads(load, 100)
    for key, payload in stored.items():
        payloads.add(key, payload)
        assert payloads._bytes == sum(map(len, payloads._whole.values())) <= 100
    assert payloads.whole(19) == stored[19]
    assert not read
    assert payloads.whole(1) == stored[1]
    assert read == [1]
    part = wire.decode_payload(payloads.part(1, 1, 1))
    assert (part.bodies, part.headers, part.keys) == ([b"x"], None, None)
    payloads.drop(19)
    payloads.drop(19)
    assert payloads._bytes == sum(map(len, payloads._whole.values()))
