"""Planted bugs: a simulator that misses them would miss other bugs, too."""

from __future__ import annotations

import pytest

from weft.dht import view as views
from weft.dht.core import Core
from weft.dht.planted_bugs import PlantedBugs
from weft.dht.view import Member
from weft.persistence.memory import MemoryStore

from . import planted
from .network import NetworkFaults
from .options import Options
from .run import simulate

_STORMY = NetworkFaults(loss=0.25, delay_us=5_000, spike=0.1)

_COMMITS = Options(pushes=24, transactions=True, network_faults=_STORMY)
_GRAPHS = Options(pushes=4, partitions=3, graphs=True, network_faults=_STORMY)

_SEQUENCES = Options(
    pushes=24, partitions=3, skew_us=5_000_000, sequences=True, network_faults=_STORMY
)

#: The bug, how many seeds are tried until one shows it, and the options of the world.
CAUGHT: list[tuple[str, int, Options | None]] = [
    ("early_ack", 4, None),
    ("answers_not_held", 4, None),
    ("skipped_fsync", 4, None),
    ("forgetful_voter", 12, None),
    ("unclean_election", 24, None),
    ("cut_to_commit", 24, None),
    ("volatile_promise", 32, None),
    ("trimmed_too_early", 24, None),
    ("generation_ignored", 40, None),
    ("dedup_by_clock", 24, None),
    ("install_whole_early", 60, None),
    ("ordered_leases_lost", 40, Options(pushes=24, ordered=True)),
    ("new_message_opens_group", 12, Options(pushes=24, grouped=True)),
    ("group_lease_not_replicated", 40, Options(pushes=24, grouped=True)),
    ("group_lent_twice", 12, Options(pushes=24, grouped=True)),
    ("multicast_loaded_in_part", 12, Options(pushes=24, multicasts=True)),
    ("multicast_payload_freed_early", 12, Options(pushes=24, multicasts=True)),
    ("multicast_stored_again", 12, Options(pushes=24, multicasts=True)),
    ("number_does_not_advance_clock", 24, _SEQUENCES),
    ("clock_in_memory", 80, _SEQUENCES),
    ("listed_despite_pending", 60, _SEQUENCES),
    ("decision_told_before_commit", 24, _SEQUENCES),
    ("abort_unfenced", 40, _SEQUENCES),
    ("equal_timestamps", 24, _SEQUENCES),
    ("proposals_not_loaded", 24, _SEQUENCES),
    ("never_sweeps", 12, Options(pushes=4, partitions=3, stochastic=True)),
    ("room_not_woken", 4, Options(pushes=4, stochastic=True)),
    ("cancel_not_written", 12, Options(pushes=24, delays=True, cancels=True)),
    ("watch_drops", 8, Options(pushes=4, partitions=1, tables=True)),
    ("named_twice", 8, Options(pushes=4, tables=True, network_faults=_STORMY)),
    ("names_not_loaded", 40, Options(pushes=4, tables=True, network_faults=_STORMY)),
    ("ttl_by_clock", 24, Options(pushes=4, partitions=1, skew_us=5_000_000, tables=True)),
    ("kept_lease_in_memory", 24, Options(pushes=24, keep_leases=True)),
    ("outbox_not_loaded", 24, _COMMITS),
    ("mark_not_replicated", 24, _COMMITS),
    ("mark_ignored", 24, _COMMITS),
    ("lost_lease_commits", 24, _COMMITS),
    ("delivered_uncommitted", 24, _COMMITS),
    ("arrival_applied_twice", 8, _GRAPHS),
    ("arrival_in_memory", 8, _GRAPHS),
    ("failed_parent_ignored", 8, _GRAPHS),
    ("waits_lost_at_adoption", 8, _GRAPHS),
    ("waiting_part_listed", 8, _GRAPHS),
    ("started_before_stored", 8, _GRAPHS),
    ("stop_strands", 40, Options(pushes=8, stop_all=True)),
    ("leases_not_handed_over", 16, Options.of_moves(14)),
    ("grow_unlevel", 120, Options(partitions=3, pushes=24, joins=True, network_faults=_STORMY)),
]
#: Bugs that need too rare a schedule for seeds: directed tests show them.
DIRECTED = {
    "missed_deletes_ignored": "tests/sim/test_missed_delete.py",
    "suspicion_strands": "tests/sim/test_stop_all.py",
    "no_fence": "tests/sim/test_replica.py",
    "reused_ballot": "below, and tests/sim/test_caspaxos.py",
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
        core.planted_bugs = PlantedBugs()
        core.planted_bugs.reused_ballot = reuses
        if not boot:
            core.found(Member("a", "a"))
            store.write(core.end(), sync=True)
            core = Core("a", store, partitions=1, entropy=lambda below: 0)
            core.planted_bugs.reused_ballot = reuses
        core.recover(boot)
        core.propose_change(views.join(f"b{boot}", Member("b", "b")))
        core.proposer.start(core.view)
        ballots.append(core.proposer._ballot)
        # The process dies with the PREPARE in flight; only the writes of its start are kept.
        store.write(core._overlay.take(), sync=True)
    assert (len(set(ballots)) < len(ballots)) is reuses
