"""A dequeuer that learns of a dead rank in the middle of a dequeue loses no item taken so far."""

from __future__ import annotations

import pytest

from weft.errors import RankLost
from weft.mpsc import ALGORITHMS, InProcessWindow, Segments, Shape
from weft.mpsc.gateway_loop import Drain, GatewayLoop
from weft.mpsc.job import Job
from weft.mpsc.liveness import GatewayLiveness
from weft.mpsc.negotiation import GATEWAY_ALGORITHMS
from weft.mpsc.rings import RingDequeuer

DEAD, ALIVE = 1, 2


class MortalWindow(InProcessWindow):
    """A window on which gets still work after ``DEAD`` has died, and loads and stores do not.

    So the time of death is between the fetch of a dequeue and its refresh of the announcement.
    """

    dead = False

    def outlives(self, target: int) -> bool:
        return target != DEAD

    def load(self, target: int, word: int) -> int:
        self._check(target)
        return super().load(target, word)

    def store(self, target: int, word: int, value: int) -> None:
        self._check(target)
        super().store(target, word, value)

    def _check(self, target: int) -> None:
        if self.dead and target == DEAD:
            raise RankLost("rank 1 is dead", DEAD)


def start(name: str) -> tuple[MortalWindow, Shape, RingDequeuer]:
    """A queue with three items of each enqueuer, one of which has died since."""
    shape = Shape(3, 0, 16, 8)
    algorithm = ALGORITHMS[name]
    segments = Segments([algorithm.segment_bytes(shape, rank) for rank in range(3)])
    window = MortalWindow(segments, 0)
    dequeuer = algorithm.dequeuer(window, shape)
    assert isinstance(dequeuer, RingDequeuer)
    enqueuers = {
        rank: algorithm.enqueuer(InProcessWindow(segments, rank), shape) for rank in (DEAD, ALIVE)
    }
    for at in range(3):
        for rank, enqueuer in enqueuers.items():
            assert enqueuer.enqueue(bytes([rank, at] * 4))
    enqueuers[ALIVE].close()
    window.dead = True
    return window, shape, dequeuer


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("name", ["slotqueue", "dltqueue", "dltqueue2", "sweepqueue"])
def test_what_was_taken_when_a_rank_was_lost_is_delivered(name: str, batch: int) -> None:
    _, _, dequeuer = start(name)
    out: list[bytes] = []
    for _ in range(20):
        try:
            single = dequeuer.dequeue() if batch == 1 else None
            out += dequeuer.dequeue_many(batch) if batch > 1 else [single] if single else []
            if dequeuer.drained():
                break
        except RankLost as lost:
            dequeuer.abandon(lost.rank)
    else:
        # Reading Last alone does not reveal the death: the rank's connection does.
        dequeuer.abandon(DEAD)
    assert dequeuer.drained()
    found = [tuple(item[:2]) for item in out]
    assert [at for rank, at in found if rank == ALIVE] == [0, 1, 2]
    of_dead = [at for rank, at in found if rank == DEAD]
    assert of_dead == list(range(len(of_dead))), "in order, and without a gap"
    assert len(of_dead) + dequeuer.lost == 3


@pytest.mark.parametrize("name", GATEWAY_ALGORITHMS)
def test_a_gateway_names_a_rank_that_is_lost_in_its_last_round(name: str) -> None:
    """The rank's connection has reported nothing yet when all queues are drained."""
    window, shape, dequeuer = start(name)
    lines = GatewayLiveness("127.0.0.1")
    pushed: list[bytes] = []
    abandoned: set[int] = set()
    job = Job(window, shape, None, dequeuer)  # type: ignore[arg-type]
    try:
        totals = GatewayLoop(lines, Drain(job), pushed.extend, None, abandoned).run(None)
    finally:
        lines.close()
    assert totals.dead == (DEAD,)
    assert abandoned == {DEAD}, "the gateway makes no collective call any more"
    assert totals.pushed == len(pushed)
    assert [item[1] for item in pushed if item[0] == ALIVE] == [0, 1, 2]
