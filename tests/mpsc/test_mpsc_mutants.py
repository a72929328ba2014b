"""The explorer is good enough: it catches every queue that has one of the paper's mistakes."""

from __future__ import annotations

import pytest

from tests.mpsc.choosers import Bursts, at_random
from tests.mpsc.mutants import MUTANTS, SURVIVORS, DequeueTriesOnce, Mutant
from tests.mpsc.scenario import Scenario, explore, explore_all, named

SEEDS_MAX = 6000


def caught(mutant: Mutant, seed: int) -> bool:
    """The run ended in a wrong answer, an error of the queue itself, or never."""
    # Alternately: the deep bugs need long stalls, the others any schedule.
    chooser = Bursts(seed // 2) if seed % 2 else at_random(seed // 2)
    try:
        run = explore(mutant.scenario, chooser)
    except (AssertionError, IndexError):
        return True
    return run.hub.blocked or run.hub.cut


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_explorer_catches(mutant: Mutant) -> None:
    assert any(caught(mutant, seed) for seed in range(SEEDS_MAX)), "it got away"


@pytest.mark.parametrize("mutant", SURVIVORS, ids=lambda mutant: mutant.name)
def test_the_explorer_does_not_yet_catch(mutant: Mutant) -> None:
    """Documents the limits of this suite.

    If this test fails, the explorer has become better, or the queue worse: move the mutant to
    MUTANTS.
    """
    assert not any(caught(mutant, seed) for seed in range(400))


def test_all_interleavings_with_one_enqueuer_do_without_the_dequeuers_second_try() -> None:
    algorithm = named("slotqueue", dequeuer=DequeueTriesOnce)
    count = explore_all(Scenario(algorithm, ((1, 1),), (1, 1, 1), capacity=2), runs_max=20_000)
    assert count is not None
