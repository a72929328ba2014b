"""Power loss at every point of a round: no acknowledged push is lost, no acked message returns.

Hundreds of seeded schedules must pass, and the same checker must catch every planted bug within a
few schedules: a checker that never fails proves nothing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.engine.power_loss import QUEUE, Schedule
from tests.engine.rig import Asked, Cut, Rig
from tests.total_queue import Verdict, check
from weft.persistence.store import Change
from weft.proto import wire
from weft.server.engine import dedup
from weft.server.engine.state import Answered, EngineState

#: For a long run: WEFT_SEEDS=10000.
SEEDS = int(os.environ.get("WEFT_SEEDS", "200"))
MUTANT_SEEDS_MAX = 20


def judge(rig: Rig, seed: int) -> Verdict:
    return check(Schedule(rig, seed).run())


@pytest.mark.parametrize("lot", range(8))
def test_no_schedule_loses_or_repeats_anything(lot: int) -> None:
    delivered = lone_pushes = 0
    for seed in range(lot * SEEDS // 8, (lot + 1) * SEEDS // 8):
        rig = Rig(seed, checking=seed % 8 == 0)
        verdict = judge(rig, seed)
        assert verdict.ok, f"seed {seed}\n{verdict.report()}"
        assert rig.counts(QUEUE) == (0, 0, 0), f"seed {seed}"
        delivered += verdict.counts["delivered"]
        lone_pushes += rig.lone_pushes
    assert lone_pushes > SEEDS // 8, "hardly a push went the short way"
    assert delivered > 40 * SEEDS // 8, "the schedules have become too weak to mean anything"


def test_the_schedules_reach_every_point_of_a_round() -> None:
    schedule = Schedule(Rig(1), 1, rounds=200)
    cuts: set[Cut] = set()

    def watch(cut: Cut, rng: random.Random, *asked: Asked) -> list[Answered]:
        cuts.add(cut)
        return Rig.cut_round(schedule.rig, cut, rng, *asked)

    schedule.rig.cut_round = watch  # type: ignore[method-assign]
    verdict = check(schedule.run())
    assert verdict.ok, verdict.report()
    assert cuts == set(Cut)
    assert verdict.counts["restarted"] == schedule.crashes > 15
    for kind in ("ack_refused", "nacked"):
        assert verdict.counts[kind], kind


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (Schedule(Rig(5), 5).run().events for _ in range(2))
    assert first == second


# --- planted bugs -----------------------------------------------------------------------------


def caught(make: Callable[[int], Rig], *wanted: str) -> bool:
    """True if the schedules find all of these violations, soon enough."""
    found: set[str] = set()
    for seed in range(MUTANT_SEEDS_MAX):
        rig = make(seed)
        rig.checking = False
        found |= {what for what, examples in judge(rig, seed).violations() if examples}
        if found >= set(wanted):
            return True
    return False


class AnswersBeforeTheWrite(Rig):
    """Sends the answers of a round before writing it."""

    def cut_round(self, cut: Cut, rng: random.Random, *asked: Asked) -> list[Answered]:
        self._work(asked)
        answers = self.engine.answers()
        self.crash(rng)
        return answers


class WritesUnsynced(Rig):
    """Reports "on disk" and leaves the data in the page cache."""

    def _write(self, changes: list[Change]) -> None:
        if changes:
            self.store.write(changes, sync=False)


def test_no_bug_no_alarm() -> None:
    assert not caught(Rig, "lost")


def test_answering_before_the_write_is_caught() -> None:
    assert caught(AnswersBeforeTheWrite, "lost", "redelivered")


def test_a_skipped_sync_is_caught() -> None:
    def make(seed: int) -> Rig:
        rig = WritesUnsynced(seed)
        rig.create(QUEUE, lease_ms=2000)
        rig.store.write([], sync=True)  # keep the queue itself
        return rig

    assert caught(make, "lost", "redelivered")


def test_a_forgotten_tombstone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fully acked batch leaves no trace: its retried push is stored again."""

    def bury_nothing(*_: object) -> None:
        return

    monkeypatch.setattr(dedup, "write_record", bury_nothing)
    assert caught(Rig, "redelivered")


def test_a_dedup_window_that_does_not_survive_a_restart_is_caught() -> None:
    def fresh_window(self: Rig) -> None:
        for queue in self.engine.state.queues.values():
            queue.windows.clear()

    class Forgetful(Rig):
        def crash(self, rng: random.Random | None = None) -> None:
            super().crash(rng)
            fresh_window(self)

    assert caught(Forgetful, "redelivered")


def test_an_ack_that_is_not_written_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed_never(self: EngineState, batch: object) -> None:
        return

    monkeypatch.setattr(EngineState, "changed", changed_never)
    assert caught(Rig, "redelivered")


def test_a_lease_that_is_granted_twice_is_caught() -> None:
    """The engine's own lists are right; the driver sends one pop's answer to two callers."""

    class Echo(Rig):
        def round(self, *asked: Asked) -> list[Answered]:
            answers = super().round(*asked)
            return answers + [each for each in answers if isinstance(each.answer, wire.Popped)]

    assert caught(Echo, "duplicated")
