"""The ring from the gateway to a receiver: every interleaving of small programs, and mutants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mpsc.choosers import Exhaustive, Uniform, at_random, every_way
from tests.mpsc.explorer import Actor, ExplorerWindow, Hub
from weft.errors import TooLarge
from weft.mpsc import Counts, InProcessWindow, Segments
from weft.mpsc.fanout_ring import DATA, LAST, OVER, FanReader, FanWriter, segment_bytes
from weft.mpsc.spsc import pieces
from weft.mpsc.window import WORD_BYTES, Window

#: Two short messages fill the ring, so that words are reused and wrap.
RING_BYTES = 5 * WORD_BYTES
STEPS_MAX = 2000
Make = Callable[[Window], FanWriter]
MakeReader = Callable[[Window], FanReader]


def writer_of(window: Window) -> FanWriter:
    return FanWriter(window, 1, 0, RING_BYTES)


def reader_of(window: Window) -> FanReader:
    return FanReader(window, 0, 0, RING_BYTES)


def explore(
    chooser: Uniform | Exhaustive,
    bodies: list[bytes],
    looks: int,
    make_writer: Make = writer_of,
    make_reader: MakeReader = reader_of,
) -> tuple[list[bytes], int]:
    """The gateway sends the bodies, polling for room ``looks`` times; the receiver takes as often.

    The receiver marks taken messages as done. Returns the received bodies, and how many the gateway
    saw done.
    """
    hub = Hub(chooser, STEPS_MAX)
    segments = Segments([segment_bytes(1, RING_BYTES, at_gateway) for at_gateway in (True, False)])
    writer = make_writer(ExplorerWindow(hub, segments, 0))
    reader = make_reader(ExplorerWindow(hub, segments, 1))
    got: list[bytes] = []
    seen = 0

    def hand_over(actor: Actor) -> None:
        nonlocal seen
        sent = 0
        for _ in range(looks):
            seen += writer.done()
            assert seen <= len(got), "done before it was taken"
            sent += writer.offer(bodies[sent:])

    def take(actor: Actor) -> None:
        for _ in range(looks):
            fresh = reader.take()
            got.extend(fresh)
            if fresh:
                reader.done(len(fresh))

    hub.run([Actor(0, hand_over, enqueues=True), Actor(1, take, enqueues=False)])
    if not hub.cut:
        assert got == bodies[: len(got)], "lost, doubled, torn or out of order"
    return got, seen


BODIES = [b"a", b"longer than one", b"", b"12345678", b"e"]


def test_random_interleavings_deliver_in_order() -> None:
    results = [explore(at_random(seed), BODIES, looks=6) for seed in range(800)]
    assert {len(got) for got, _ in results} >= {0, 2, 5}
    assert any(seen == 5 for _, seen in results)


def test_all_interleavings_of_a_small_program_deliver_in_order() -> None:
    lengths: set[int] = set()

    def once(chooser: Exhaustive) -> None:
        lengths.add(len(explore(chooser, BODIES[:3], looks=2)[0]))

    count = every_way(once, 20_000)
    assert count is not None, "not all of them were run"
    assert lengths >= {0, 2}


class LastFirst(FanWriter):
    """Last is moved before the data is there."""

    def _write(self, data: bytes) -> None:
        window, at = self._window, 0
        for place, words in pieces(self._last, len(data) // WORD_BYTES, self._words):
            end = at + words * WORD_BYTES
            window.put(self.rank, DATA + place, data[at:end])
            at = end
        self._last += len(data) // WORD_BYTES
        window.store(self.rank, LAST, self._last)
        window.flush(self.rank)


class ForgetsSizes(FanWriter):
    """Words are reused as soon as they are written."""

    def offer(self, bodies: object) -> int:
        self._freed = self._last
        return super().offer(bodies)  # type: ignore[arg-type]


class DoneFirst(FanReader):
    """Done frees the words before they are read."""

    def take(self) -> list[bytes]:
        last = self._window.load(1, LAST)
        if last != self._read:
            self._window.store(0, self._done_word, self._done + 1)
        return super().take()


@pytest.mark.parametrize(
    ("writer", "reader"),
    [(LastFirst, FanReader), (ForgetsSizes, FanReader), (FanWriter, DoneFirst)],
)
def test_the_explorer_catches(writer: type[FanWriter], reader: type[FanReader]) -> None:
    def caught(seed: int) -> bool:
        try:
            explore(
                at_random(seed),
                BODIES,
                6,
                lambda window: writer(window, 1, 0, RING_BYTES),
                lambda window: reader(window, 0, 0, RING_BYTES),
            )
        except (AssertionError, IndexError):
            return True
        return False

    assert any(caught(seed) for seed in range(2000)), "it got away"


def pair() -> tuple[FanWriter, FanReader, InProcessWindow, InProcessWindow]:
    segments = Segments([segment_bytes(1, RING_BYTES, at_gateway) for at_gateway in (True, False)])
    windows = InProcessWindow(segments, 0), InProcessWindow(segments, 1)
    return writer_of(windows[0]), reader_of(windows[1]), *windows


def test_a_message_costs_its_receiver_one_remote_operation() -> None:
    writer, reader, gateway, receiver = pair()
    start = gateway.counts.copy()
    assert writer.offer([b"a", b"b"]) == 2
    assert gateway.counts.since(start) == Counts(remote=2, local=0)
    start = receiver.counts.copy()
    assert reader.take() == [b"a", b"b"]
    reader.done(2)
    assert receiver.counts.since(start) == Counts(remote=1, local=2)


def test_what_does_not_fit_waits_and_what_never_fits_is_refused() -> None:
    writer, reader, _, _ = pair()
    assert writer.offer([b"12345678"] * 4) == 2
    assert writer.offer([b"12345678"]) == 0
    assert reader.take() == [b"12345678"] * 2
    reader.done(1)
    assert writer.done() == 1
    assert writer.offer([b"12345678"] * 2) == 1
    with pytest.raises(TooLarge, match="larger ring_bytes"):
        writer.offer([bytes(RING_BYTES)])


def test_the_end_is_told_both_ways() -> None:
    writer, reader, _, _ = pair()
    assert not writer.closed()
    writer.end(OVER)
    assert reader.state() == OVER
    reader.close()
    assert writer.closed()
