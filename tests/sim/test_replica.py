"""One partition's replicas, message by message: fencing, commit, growth, sole copy."""

from __future__ import annotations

from weft.dht.messages import (
    AnyMessage,
    AppendEntries,
    EntriesAppended,
    Entry,
    FencedReply,
    Fetch,
    Install,
    Seal,
)
from weft.dht.planted_bugs import PlantedBugs
from weft.dht.role import Role
from weft.dht.view import ReplicaSet

from .replica_rig import ReplicaRig, put

# --- fencing ----------------------------------------------------------------------------------


def test_who_has_promised_more_is_not_moved_by_an_older_primary() -> None:
    rig = ReplicaRig("abc")
    rig.hear("c", "b", Seal(0, 2))
    rig.in_flight.clear()
    late: list[Entry] = [(1, 1, b"late", [])]
    older: list[AnyMessage] = [
        Seal(0, 1),
        Fetch(0, 1, 1),
        AppendEntries(0, 1, (0, 0), late, 0, 0),
        Install(0, 1, (1, 1), 0, [], True),
    ]
    for message in older:
        rig.hear("a", "b", message)
        assert rig.in_flight.pop() == ("b", "a", FencedReply(0, 2))
        assert not rig.in_flight
    assert rig["b"].log.end == 0


def test_without_the_fence_it_would_be() -> None:
    planted_bugs = PlantedBugs()
    planted_bugs.no_fence = True
    rig = ReplicaRig("abc", planted_bugs)
    rig.hear("c", "b", Seal(0, 2))
    rig.hear("a", "b", AppendEntries(0, 1, (0, 0), [(1, 1, b"late", [])], 0, 0))
    assert rig["b"].log.end == 1
    assert rig.in_flight[-1] == ("b", "a", EntriesAppended(0, 1, 1))


def test_a_promise_is_kept_over_a_crash() -> None:
    rig = ReplicaRig("abc")
    rig.hear("c", "b", Seal(0, 7))
    rig.restart("b")
    assert rig["b"].promised == 7
    rig.hear("a", "b", Seal(0, 6))
    assert rig.in_flight[-1] == ("b", "a", FencedReply(0, 7))


def test_a_primary_that_is_fenced_leads_no_more() -> None:
    rig = ReplicaRig("ab")
    primary = rig.active()
    lsn = rig.propose("a", put("k"))
    rig.hear("b", "a", FencedReply(0, 2))
    assert primary.role is Role.IDLE
    rig.play()
    assert primary.committed < lsn


# --- commit -----------------------------------------------------------------------------------


def test_an_entry_is_committed_when_every_member_has_it_and_nobody_else_counts() -> None:
    rig = ReplicaRig("abc")
    primary = rig.active("abc")
    lsn = rig.propose("a", put("k"))
    assert primary.committed < lsn
    rig.hear("b", "a", EntriesAppended(0, 1, lsn))
    assert primary.committed < lsn
    rig.hear("x", "a", EntriesAppended(0, 1, lsn))
    assert primary.committed < lsn
    rig.hear("c", "a", EntriesAppended(0, 1, lsn))
    assert primary.committed == lsn


def test_a_learner_is_not_waited_for() -> None:
    rig = ReplicaRig("abc")
    primary = rig.active("ab", "c")
    lsn = rig.propose("a", put("k"))
    rig.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert primary.committed == lsn
    assert rig["c"].log.end < lsn


def test_below_min_sync_nothing_inherited_is_committed_and_nothing_is_served() -> None:
    rig = ReplicaRig("ab")
    primary = rig.active()
    lsn = rig.propose("a", put("k"))
    rig.in_flight.clear()
    rig.place(2, "a", "b", of="a")
    assert primary.role is Role.ACTIVE
    assert not primary.serving
    assert primary.committed < lsn <= primary.log.end


def test_what_is_committed_is_applied_by_all_and_then_dropped() -> None:
    rig = ReplicaRig("ab")
    rig.active()
    for number in range(5):
        rig.propose("a", put(f"k{number}"))
        rig.play()
    rig.remind("a")
    rig.play()
    rig.remind("a")
    rig.play()
    assert len(rig.players["a"].state()) == 5
    assert rig.players["a"].state() == rig.players["b"].state()
    assert rig["a"].log.base == 5
    assert rig["b"].log.base >= 3  # the new base arrives with the next entries


def test_an_entry_that_a_follower_lacks_is_not_dropped() -> None:
    rig = ReplicaRig("abc")
    primary = rig.active("ab", "c")
    for number in range(5):
        rig.propose("a", put(f"k{number}"))
        rig.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert primary.applied == 5
    assert primary.log.base == 0
    rig.remind("a")
    rig.remind("a")
    rig.play()
    assert rig["c"].log.end == 5
    assert rig.players["c"].replaced_count == 0  # from the log: no snapshot was sent


# --- growth -----------------------------------------------------------------------------------


def test_a_pending_learner_is_waited_for_from_the_instant_it_is_pending() -> None:
    rig = ReplicaRig("abc")
    primary = rig.active("ab", "c")
    assert primary.primary.want_grow("c")
    lsn = rig.propose("a", put("k"))
    rig.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert primary.committed < lsn
    assert not primary.primary.want_grow("c")  # not caught up
    rig.remind("a")
    rig.remind("a")
    rig.play()
    assert primary.committed == lsn
    assert primary.primary.want_grow("c")


def test_it_stays_pending_until_a_newer_epoch_is_learned() -> None:
    rig = ReplicaRig("abc")
    primary = rig.active("ab", "c")
    assert primary.primary.want_grow("c")
    rig.players["a"].dead.add("c")
    assert not primary.primary.want_grow("c")
    assert primary.pending == {"c"}  # the view may have been changed meanwhile
    rig.place(1, "ab", "c")
    assert primary.pending == {"c"}
    rig.place(2, "ab", "c")
    assert primary.pending == set()


def test_who_dies_while_pending_is_not_waited_for_once_the_wish_is_decided() -> None:
    rig = ReplicaRig("abc")
    primary = rig.active("ab", "c")
    assert primary.primary.want_grow("c")
    lsn = rig.propose("a", put("k"))
    rig.play(drop=lambda sender, to, _: "c" in (sender, to))
    primary.primary.wait_only_for("c")
    assert primary.committed < lsn
    primary.primary.wait_only_for("")  # the register refuses, and c is not reachable
    assert primary.committed == lsn


def test_a_learner_that_is_far_behind_or_silent_does_not_become_pending() -> None:
    rig = ReplicaRig("abc")
    primary = rig.active("ab", "c")
    for _ in range(70):
        rig.propose("a", put("k"))
    rig.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert not primary.primary.want_grow("c")
    assert primary.pending == set()
    assert not primary.primary.want_grow("d")


# --- alone ------------------------------------------------------------------------------------


def test_alone_the_state_is_written_at_once_and_no_log_is_kept() -> None:
    rig = ReplicaRig("a")
    primary = rig.active("a", min_sync=1)
    lsn = rig.propose("a", put("k"))
    assert primary.alone
    assert lsn == primary.committed == primary.log.end == 0
    assert len(rig.players["a"].state()) == 1


def test_what_was_written_alone_has_a_number_of_its_own_once_somebody_follows() -> None:
    rig = ReplicaRig("ab")
    primary = rig.active("a", min_sync=1)
    rig.propose("a", put("k"))
    rig.place(1, "a", "b", min_sync=1)
    assert primary.log.base == primary.log.end == 1
    rig.play()
    assert rig.players["b"].replaced_count == 1
    assert rig.players["b"].state() == rig.players["a"].state()


def test_who_followed_once_does_not_take_his_old_state_for_the_new_one() -> None:
    rig = ReplicaRig("ab")
    rig.active("a", "b", min_sync=1)
    rig.propose("a", put("one"))
    rig.play()
    end = rig["b"].log.end
    rig.place(2, "a", of="a", min_sync=1)  # b was removed, and does not know it
    rig.play()
    rig.propose("a", put("two"))
    rig.place(3, "a", "b", min_sync=1)
    assert rig["a"].log.end > end
    rig.play()
    assert rig.players["b"].replaced_count >= 1
    assert rig.players["b"].state() == rig.players["a"].state()


def test_alone_the_log_comes_into_the_state_before_anything_is_written_without_one() -> None:
    rig = ReplicaRig("abc")
    rig.active("ab", min_sync=1)
    rig.propose("a", put("k", b"one"))
    rig.play()
    last = rig["b"]
    last.learn(ReplicaSet(2, ("b",)), 1)  # a died and was removed: b is the only replica
    assert last.alone
    assert last.applied < last.committed == last.log.end
    lsn = last.primary.propose(put("k", b"two"), [])
    assert lsn == last.log.end, "an older entry would be written over it"
    last.learn(ReplicaSet(2, ("b",), ("c",)), 1)  # a learner is added
    assert last.applied < last.log.end == lsn, "what was acknowledged is not passed over"
    rig.end("b")
    rig.play()
    (value,) = rig.players["b"].state().values()
    assert value[8:] == b"two"
