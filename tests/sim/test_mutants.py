"""Planted bugs: a simulator that does not find them would find no other ones either."""

from __future__ import annotations

import pytest

from weft.dht import view as views
from weft.dht.core import Core
from weft.dht.mutant import Mutant
from weft.dht.view import Member
from weft.persistence.memory import MemoryStore

from . import planted
from .network import Weather
from .options import Options
from .run import simulate

_STORMY = Weather(loss=0.25, delay_us=5_000, spike=0.1)

#: The bug, the seeds of which one at least must show it, and what the world is like.
CAUGHT: list[tuple[str, int, Options | None]] = [
    ("early_ack", 4, None),
    ("answers_not_held", 4, None),
    ("skipped_fsync", 4, None),
    ("forgetful_voter", 12, None),
    ("unclean_election", 24, None),
    ("cut_to_commit", 24, None),
    ("volatile_promise", 32, None),
    ("trimmed_too_early", 24, None),
    ("turn_ignored", 40, None),
    ("dedup_by_clock", 24, None),
    ("install_whole_early", 60, None),
    ("ordered_leases_lost", 40, Options(pushes=24, ordered=True)),
    ("grow_unlevel", 120, Options(partitions=3, pushes=24, joins=True, weather=_STORMY)),
]
#: These need so rare a schedule that it is played on purpose.
DIRECTED = {
    "no_fence": "tests/sim/test_replica.py",
    "reused_ballot": "below, and tests/sim/test_register.py",
    "no_barrier": "tests/sim/test_stale.py",
    "late_word_counts": "tests/sim/test_stale.py",
    "unheard_trusted": "tests/sim/test_retire.py",
    "pending_not_asked": "tests/sim/test_stale.py",
    "strays_buried_early": "tests/sim/test_stale.py",
    "not_sure": "tests/sim/test_stale.py",
    "records_not_counted": "tests/sim/test_stale.py",
}


def test_every_bug_is_tried() -> None:
    assert {name for name, _, _ in CAUGHT} | set(DIRECTED) == set(planted.ALL)


@pytest.mark.parametrize(("name", "seeds", "options"), CAUGHT, ids=[each[0] for each in CAUGHT])
def test_a_planted_bug_is_caught(name: str, seeds: int, options: Options | None) -> None:
    with planted.planted(name) as switch:
        assert any(_shows(seed, options, switch) for seed in range(seeds))


def _shows(seed: int, options: Options | None, switch: str) -> bool:
    try:
        simulate(seed, options, switch)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("reuses", [False, True])
def test_a_node_that_restarts_never_uses_a_ballot_again(reuses: bool) -> None:
    store = MemoryStore()
    ballots = []
    for boot in range(3):
        core = Core("a", store, partitions=1, entropy=lambda below: 0)
        core.mutant = Mutant()
        core.mutant.reused_ballot = reuses
        if not boot:
            core.found(Member("a", "a"))
            store.write(core.end(), sync=True)
            core = Core("a", store, partitions=1, entropy=lambda below: 0)
            core.mutant.reused_ballot = reuses
        core.recover(boot)
        core.wish(views.join(f"b{boot}", Member("b", "b")))
        core.proposer.start(core.view)
        ballots.append(core.proposer._ballot)
        # It dies with the PREPARE under way; only what was written at its start is kept.
        store.write(core._overlay.take(), sync=True)
    assert (len(set(ballots)) < len(ballots)) is reuses
