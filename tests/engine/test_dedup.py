"""Idempotent push: by (producer, batch), and by dedup key, within the window and not beyond."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.rig import Rig
from weft.proto import wire
from weft.server.engine import dedup as dedup_module
from weft.server.engine.dedup import SLICE_US, DedupWindow, First, expiry_slice

WINDOW_MS = 300_000
SLICE_MS = SLICE_US // 1000


def drain(rig: Rig) -> wire.Settled:
    return rig.ack("q", *rig.pop("q", 100))


AFTER = [
    pytest.param(lambda rig: None, id="while it waits"),
    pytest.param(lambda rig: rig.pop("q"), id="while it is lent"),
    pytest.param(drain, id="after its ack"),
    pytest.param(lambda rig: rig.purge("q"), id="after a purge"),
    pytest.param(lambda rig: (rig.purge("q"), rig.settle()), id="after a purge was swept"),
    pytest.param(lambda rig: rig.restart(), id="after a restart"),
    pytest.param(lambda rig: rig.crash(), id="after a power loss"),
    pytest.param(lambda rig: (drain(rig), rig.restart()), id="after its ack and a restart"),
    pytest.param(lambda rig: (rig.purge("q"), rig.crash()), id="after a purge and a power loss"),
    pytest.param(lambda rig: (drain(rig), rig.purge("q"), rig.restart()), id="after all of it"),
]


@pytest.mark.parametrize("then", AFTER)
def test_the_same_batch_again_is_the_same_push(rig: Rig, then: Callable[[Rig], object]) -> None:
    first = rig.push("q", b"a", b"b", producer=5, batch=9)
    then(rig)
    before = sum(rig.counts("q"))
    again = rig.push("q", b"a", b"b", producer=5, batch=9)
    assert again.duplicate
    assert (again.partition, again.producer, again.batch, again.count) == (
        first.partition, 5, 9, 2,
    )  # fmt: skip
    assert sum(rig.counts("q")) == before
    assert not rig.push("q", b"c", producer=5, batch=10).duplicate
    assert not rig.push("q", b"c", producer=6, batch=9).duplicate


@pytest.mark.parametrize("then", AFTER)
def test_the_same_key_again_is_the_first_push(rig: Rig, then: Callable[[Rig], object]) -> None:
    first = rig.push("q", b"a", b"b", producer=5, batch=9, dedup_key="order 17")
    then(rig)
    again = rig.push("q", b"x", producer=8, batch=1, dedup_key="order 17")
    assert again.duplicate
    assert (again.partition, again.producer, again.batch, again.count) == (
        first.partition, 5, 9, 2,
    )  # fmt: skip
    assert rig.push("q", b"a", b"b", producer=5, batch=9, dedup_key="order 17").duplicate
    assert not rig.push("q", b"x", producer=8, batch=1, dedup_key="order 18").duplicate
    assert rig.stats("q").duplicates == 2


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("acked", [False, True])
def test_it_is_remembered_for_the_window_and_then_forgotten(
    rig: Rig, restarts: bool, acked: bool
) -> None:
    rig.push("q", b"a", batch=1)
    rig.push("q", b"a", batch=3, dedup_key="k")
    if acked:
        drain(rig)
    rig.advance(WINDOW_MS - 1)
    if restarts:
        rig.restart()
    assert rig.push("q", b"a", batch=1).duplicate
    assert rig.push("q", b"b", batch=2, dedup_key="k").duplicate
    rig.advance(1 + 2 * SLICE_MS)  # records expire by slice, checked once per slice
    if restarts:
        rig.restart()
    assert not rig.push("q", b"a", batch=1).duplicate
    assert not rig.push("q", b"b", batch=2, dedup_key="k").duplicate


def test_the_disk_forgets_too(rig: Rig) -> None:
    for number in range(20):
        rig.push("q", b"a", batch=number, dedup_key=f"k{number}")
    drain(rig)
    assert sum(key[:1] in b"de" for key in rig.store._rows) == 40
    rig.advance(WINDOW_MS + 2 * SLICE_MS)
    assert not [key for key in rig.store._rows if key[:1] in b"de"]
    assert not any(map(len, rig.engine.state.queues["q"].windows.values()))


def test_a_batch_acked_after_its_window_leaves_no_record(rig: Rig) -> None:
    rig.push("q", b"a", batch=1)
    rig.advance(WINDOW_MS + 2 * SLICE_MS)
    drain(rig)
    assert not [key for key in rig.store._rows if key[:1] == b"d"]


def test_queues_do_not_share_a_window(rig: Rig) -> None:
    rig.create("other")
    rig.push("q", b"a", batch=1, dedup_key="k")
    assert not rig.push("other", b"a", batch=1, dedup_key="k").duplicate


def test_a_queue_made_anew_has_a_new_window(rig: Rig) -> None:
    rig.push("q", b"a", batch=1)
    rig.delete("q")
    rig.create("q")
    assert not rig.push("q", b"a", batch=1).duplicate


def test_a_window_of_zero_remembers_nothing(rig: Rig) -> None:
    rig.create("free", dedup_window_ms=0)
    for _ in range(2):
        assert not rig.push("free", b"a", batch=1, dedup_key="k").duplicate
    rig.ack("free", *rig.pop("free", 2))
    assert not [key for key in rig.store._rows if key[:1] in b"de"]


def test_a_dead_letter_is_still_known_where_it_was_pushed(rig: Rig) -> None:
    rig.create("jobs", max_deliveries=1, dead_letter="jobs.dead")
    rig.push("jobs", b"a", batch=1)
    rig.nack("jobs", *rig.pop("jobs"))
    rig.ack("jobs.dead", *rig.pop("jobs.dead"))
    rig.restart()
    assert rig.push("jobs", b"a", batch=1).duplicate


# --- the window itself ------------------------------------------------------------------------


@given(
    st.integers(0, 7 * 24 * 3600 * 1000),
    st.lists(st.tuples(st.integers(1, 10**12), st.integers(0, 3), st.integers(0, 50)), max_size=40),
    st.integers(0, 10**12),
)
def test_nothing_is_forgotten_within_its_window(
    window_ms: int, pushes: list[tuple[int, int, int]], now: int
) -> None:
    window = DedupWindow(window_ms)
    for stamp, producer, batch in pushes:
        window.add(stamp, producer, batch, f"{producer}/{batch}", 1)
    window.expire(now)
    for stamp, producer, batch in pushes:
        if window_ms and stamp + window_ms * 1000 > now:
            assert window.has(producer, batch)
            assert window.first(f"{producer}/{batch}") == First(producer, batch, 1)


@given(st.integers(1, 7 * 24 * 3600 * 1000), st.integers(1, 10**12))
def test_everything_is_forgotten_some_time(window_ms: int, stamp: int) -> None:
    window = DedupWindow(window_ms)
    window.add(stamp, 1, 1, "k", 1)
    # A group is at most a sixteenth of the window, and never less than a slice.
    slack = max(SLICE_US, window_ms * 1000 // dedup_module._GROUPS_MAX) + SLICE_US
    window.expire(stamp + window_ms * 1000 + slack)
    assert not window.has(1, 1)
    assert window.first("k") is None
    assert len(window) == 0


@given(st.lists(st.integers(0, 7 * 24 * 3600 * 1000), min_size=1, max_size=5), st.data())
def test_a_resize_keeps_what_is_remembered(sizes: list[int], data: st.DataObject) -> None:
    window = DedupWindow(WINDOW_MS)
    stamp = 10**15
    window.add(stamp, 1, 1, "k", 2)
    for number, size in enumerate(sizes):
        window.resize(size)
        window.add(stamp, 2, number, None, 1)
    window.expire(stamp + data.draw(st.integers(0, WINDOW_MS * 1000)))
    assert window.has(1, 1)
    assert window.first("k") == First(1, 1, 2)


def groups_of(window: DedupWindow) -> int:
    return sum(map(len, window._groups.values()))


def test_groups_are_few_however_long_the_window() -> None:
    window = DedupWindow(7 * 24 * 3600 * 1000)
    for hour in range(7 * 24):
        window.add(10**15 + hour * 3600 * 1_000_000, 1, hour, None, 1)
    assert groups_of(window) <= dedup_module._GROUPS_MAX + 2
    assert len(window) == 7 * 24


def test_groups_do_not_grow_with_resizes() -> None:
    window = DedupWindow(WINDOW_MS)
    for number in range(200):
        window.add(10**15, 1, number, f"k{number}", 1)
        window.resize(WINDOW_MS if number % 2 else 7 * 24 * 3600 * 1000)
    assert groups_of(window) <= 2
    assert all(window.has(1, number) for number in range(200))
    assert len(window) == 400


@pytest.mark.parametrize("window_ms", [WINDOW_MS, 7 * 24 * 3600 * 1000])
@pytest.mark.parametrize("apart_us", [1, 1_000_000])
def test_beyond_its_limit_the_oldest_go_first(window_ms: int, apart_us: int) -> None:
    """Also with a million pushes within one span of a long window."""
    window = DedupWindow(window_ms, ids_max=160)
    for number in range(500):
        window.add(10**15 + number * apart_us, 1, number, f"k{number}", 1)
        assert len(window) <= 160
        assert groups_of(window) <= 2 * dedup_module._GROUPS_MAX + 2
    remembered = [number for number in range(500) if window.has(1, number)]
    assert remembered == list(range(500 - len(remembered), 500))
    assert len(remembered) >= 60, "at most a span is forgotten at once"
    assert window.first("k499") == First(1, 499, 1)


def test_a_slice_ends_after_the_window() -> None:
    assert expiry_slice(0, 0) == 0
    assert expiry_slice(SLICE_US - 1, 0) == 0
    assert expiry_slice(SLICE_US, 0) == 1
    assert expiry_slice(1, SLICE_MS) == 1


def test_what_was_pushed_to_a_queue_that_is_gone_is_forgotten_in_time(rig: Rig) -> None:
    """Without the catalogue's lead a node keeps the pushes: the queue's record may arrive."""
    rig.push("q", b"a", producer=5, batch=9)
    drain(rig)
    state = rig.engine.state
    partitions = set(range(state.partitions))
    rig.engine.abandon(partitions | {state.catalogue})
    rig.engine.learn_queue(b"qq", None)
    rig.engine.adopt(partitions)
    assert sum(map(len, state.stray_pushes.values())) == 1
    rig.advance(WINDOW_MS + 2 * SLICE_MS)
    assert not state.stray_pushes
