"""Reused buffers: never while a view of one exists."""

from __future__ import annotations

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.client.transport.buffer_pool import KEPT_BYTES_MAX, KEPT_MAX, STEP_BYTES, BufferPool


def kept(pool: BufferPool) -> list[int]:
    return sorted(map(len, pool._kept))


def test_a_buffer_is_used_again_when_nothing_looks_into_it() -> None:
    pool = BufferPool()
    first = pool.take(100)
    part = first[10:20]
    part[:] = b"0123456789"
    del first
    second = pool.take(200)
    second[:] = bytes(200)
    assert bytes(part) == b"0123456789", "a part of the view holds it, too"
    assert kept(pool) == [STEP_BYTES, STEP_BYTES]
    del part, second
    again = [pool.take(STEP_BYTES), pool.take(1)]
    assert kept(pool) == [STEP_BYTES, STEP_BYTES]
    assert [len(view) for view in again] == [STEP_BYTES, 1]


def test_what_is_too_small_makes_room_only_if_it_must() -> None:
    pool = BufferPool()
    pool.take(1)
    pool.take(3 * STEP_BYTES)
    assert kept(pool) == [STEP_BYTES, 3 * STEP_BYTES]
    pool.take(KEPT_BYTES_MAX)
    assert sum(kept(pool)) <= KEPT_BYTES_MAX


@settings(deadline=None)  # moves megabytes
@given(st.lists(st.tuples(st.integers(1, KEPT_BYTES_MAX // 4), st.integers(0, 9)), max_size=40))
def test_whatever_is_held_stays_as_it_was_written(takes: list[tuple[int, int]]) -> None:
    pool = BufferPool()
    held: dict[int, tuple[memoryview, bytes]] = {}
    for turn, (size, slot) in enumerate(takes):
        mark = turn.to_bytes(2, "big")
        view = pool.take(size + 4)
        assert len(view) == size + 4
        view[:2] = view[-2:] = mark
        held[slot] = view, mark  # releases the previous view
        for other, written in held.values():
            assert other[:2] == other[-2:] == written
        assert sum(kept(pool)) <= KEPT_BYTES_MAX
        assert len(kept(pool)) <= KEPT_MAX


def test_threads_never_get_the_same_one() -> None:
    pool = BufferPool()
    failures: list[int] = []

    def work(number: int) -> None:
        for turn in range(2_000):
            view = pool.take(64)
            mark = bytes([number, turn % 256]) * 32
            view[:] = mark
            if bytes(view) != mark:
                failures.append(turn)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(kept(pool)) <= KEPT_MAX + 4, "each thread may have one in hand when others count"
