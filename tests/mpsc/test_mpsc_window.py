"""The window contract on the in-process window (two threads); on MPI see test_mpsc_mpi.py."""

from __future__ import annotations

import threading

import pytest

from tests.mpsc.choosers import at_random
from tests.mpsc.explorer import Actor, ExplorerWindow, Hub
from tests.mpsc.window_contract import CHECKS, SEGMENT_WORDS
from weft.mpsc import InProcessWindow, Segments


@pytest.mark.parametrize("name", CHECKS)
def test_the_in_process_window_keeps_the_contract(name: str) -> None:
    segments = Segments([SEGMENT_WORDS * 8] * 2)
    barrier = threading.Barrier(2)
    errors: list[BaseException] = []

    def rank(number: int) -> None:
        try:
            CHECKS[name](InProcessWindow(segments, number), lambda: _discard(barrier.wait(100)))
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=rank, args=(number,), daemon=True) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads)


def _discard(_: int) -> None:
    """Ignore the barrier's index."""


def test_a_segment_has_bounds() -> None:
    window = InProcessWindow(Segments([16, 16]), 0)
    for word in (2, -1):
        with pytest.raises(IndexError):
            window.put(1, word, b"x")
    with pytest.raises(IndexError):
        window.load(1, 2)


def test_the_explorers_put_may_be_late_until_the_flush() -> None:
    """Without a flush another actor can miss the data, with one it cannot."""
    seen = {flushed: set[int]() for flushed in (False, True)}
    for flushed in seen:
        for seed in range(200):
            seen[flushed].add(_announced_value(seed, flushed))
    assert seen == {False: {0, 7, -1}, True: {7, -1}}


def _announced_value(seed: int, flushed: bool) -> int:
    """The second actor's value of word 0 after it saw word 1 set; -1 if it did not."""
    hub = Hub(at_random(seed), steps_max=100)
    segments = Segments([16, 16])
    first, second = (ExplorerWindow(hub, segments, rank) for rank in (0, 1))
    value = -1

    def write(actor: Actor) -> None:
        first.put(0, 0, (7).to_bytes(8, "little"))
        if flushed:
            first.flush(0)
        first.store(0, 1, 1)
        first.flush(0)

    def read(actor: Actor) -> None:
        nonlocal value
        if second.load(0, 1):
            value = second.load(0, 0)

    hub.run([Actor(0, write, enqueues=True), Actor(1, read, enqueues=False)])
    return value
