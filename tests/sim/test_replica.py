"""One partition's replicas, message by message: fencing, commit, failover, growth, sole copy."""

from __future__ import annotations

from weft.dht.log import Changes, encode
from weft.dht.messages import (
    AnyMessage,
    AppendEntries,
    EntriesAppended,
    Entry,
    FencedReply,
    Fetch,
    Install,
    Need,
    Seal,
    SealReply,
)
from weft.dht.planted_bugs import PlantedBugs
from weft.dht.role import Role
from weft.dht.view import ReplicaSet
from weft.persistence import layout

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


# --- a new primary ----------------------------------------------------------------------------


def test_a_fresh_process_leads_nothing() -> None:
    rig = ReplicaRig("ab")
    rig.active()
    rig.restart("a")
    assert rig["a"].role is Role.IDLE


def test_a_new_primary_adopts_the_log_that_holds_most_and_levels_the_others() -> None:
    rig = ReplicaRig("abc")
    rig.active("abc")
    rig.propose("a", put("one"), put("two"))
    # Only b receives the entries, and a dies.
    rig.play(drop=lambda sender, to, _: "c" in (sender, to))
    lsn = rig["b"].log.end
    assert rig["c"].log.end < lsn
    rig.place(2, "cb", of="bc")
    rig.play()
    assert rig["c"].role is Role.ACTIVE
    assert rig["c"].committed == lsn
    assert rig["c"].log.last == rig["b"].log.last


def test_a_longer_log_of_an_older_epoch_is_cut_not_adopted() -> None:
    rig = ReplicaRig("abc")
    rig.active("ab")
    rig.propose("a", put("kept"))
    rig.play()
    rig.propose("a", put("x"), put("y"), put("z"))  # never replicated: never acknowledged
    rig.in_flight.clear()
    rig.place(2, "b", "ac", of="bc", min_sync=1)
    rig.play()
    rig.propose("b", put("newer"))
    rig.play()
    rig.place(3, "ba", "c", of="abc")
    rig.play()
    assert rig["b"].role is Role.ACTIVE
    assert rig["a"].log.lineage[-1] == rig["b"].log.lineage[-1]
    rig.remind("b")
    rig.play()
    assert rig.players["a"].state() == rig.players["b"].state()
    assert len(rig.players["a"].state()) == 2


def test_it_is_not_active_before_all_are_level() -> None:
    rig = ReplicaRig("ab")
    rig.active()
    rig.propose("a", put("one"))
    rig.in_flight.clear()
    rig.place(2, "ab")
    rig.play(drop=lambda _, __, message: isinstance(message, EntriesAppended))
    assert not rig["a"].serving
    assert rig["a"].role is Role.COPYING
    rig.remind("a")
    rig.remind("a")
    rig.play()
    assert rig["a"].serving


def test_every_loss_is_made_good_by_saying_it_again() -> None:
    rig = ReplicaRig("ab")
    for number, lost in enumerate((Seal, SealReply, AppendEntries, EntriesAppended, Fetch)):
        rig.place(number + 2, "ab" if number % 2 else "ba")
        seen: list[object] = []

        def first(_: str, __: str, message: object, kind: type = lost, s: list[object] = seen
                  ) -> bool:  # fmt: skip
            drops = isinstance(message, kind) and not s
            s += [message] * drops
            return drops

        leader = "a" if number % 2 else "b"
        for _ in range(4):
            rig.play(drop=first)
            rig.remind(leader)
        rig.play()
        assert rig[leader].role is Role.ACTIVE, lost
        rig.propose(leader, put(f"k{number}"))
        rig.play(drop=first)
        rig.remind(leader)
        rig.remind(leader)
        rig.play()
        assert rig[leader].committed == rig[leader].log.end, lost


def test_a_follower_with_another_past_says_what_it_has_and_is_cut() -> None:
    rig = ReplicaRig("abc")
    mine: list[Entry] = [
        (1, 1, _data("x"), []),
        (2, 1, _data("never acknowledged"), []),
    ]
    rig.hear("a", "b", AppendEntries(0, 1, (0, 0), mine, 0, 0))
    rig.hear("c", "b", AppendEntries(0, 3, (2, 2), [(3, 3, _data("z"), [])], 0, 0))
    assert isinstance(rig.in_flight[-1][2], Need)
    theirs: list[Entry] = [(2, 2, _data("y"), []), (3, 3, _data("z"), [])]
    rig.hear("c", "b", AppendEntries(0, 3, (1, 1), theirs, 0, 0))
    assert rig.in_flight[-1] == ("b", "c", EntriesAppended(0, 3, 3))
    assert rig["b"].log.lineage == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_late_copy_of_an_append_cuts_nothing() -> None:
    rig = ReplicaRig("ab")
    first = AppendEntries(0, 1, (0, 0), [(1, 1, _data("x"), [])], 0, 0)
    rig.hear("a", "b", first)
    rig.hear("a", "b", AppendEntries(0, 1, (1, 1), [(2, 1, _data("y"), [])], 0, 0))
    rig.hear("a", "b", first)
    assert rig["b"].log.end == 2


def test_a_cut_takes_the_payloads_with_it() -> None:
    rig = ReplicaRig("abc")
    rig.active("ab")
    body = layout.body(0, 1)
    rig.propose("a", Changes([], [], [body]))
    rig.in_flight.clear()
    assert rig.players["a"].store.get(body) is not None
    rig.place(2, "b", "a", of="b", min_sync=1)
    rig.play()
    rig.propose("b", put("newer"))
    rig.place(3, "ba")
    rig.play()
    assert rig["b"].role is Role.ACTIVE
    assert rig.players["a"].store.get(body) is None


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


# --- ownership generations ----------------------------------------------------------------------


def test_a_turn_lasts_as_long_as_nobody_else_may_have_changed_anything() -> None:
    rig = ReplicaRig("abc")
    primary = rig.active("ab", "c")
    turn = primary.ownership_generation
    rig.propose("a", put("k"))
    rig.play()
    rig.place(2, "ab", "c")  # b restarted: a stays primary
    rig.play()
    assert primary.ownership_generation == turn
    rig.place(3, "ba", "c")
    rig.play()
    assert primary.ownership_generation > turn


def test_a_turn_ends_when_entries_of_others_are_taken_over() -> None:
    rig = ReplicaRig("ab")
    rig.active()
    rig.propose("a", put("k"))
    rig.play()
    rig.restart("a")
    turn = rig["a"].ownership_generation
    rig.place(2, "ba", of="b")
    rig.play()
    rig.propose("b", put("l"))
    rig.play()
    rig.place(3, "ab")
    rig.play()
    assert rig["a"].role is Role.ACTIVE
    assert rig["a"].ownership_generation > turn


def test_a_primary_that_goes_on_takes_nothing_over_from_a_learner_that_joins() -> None:
    """The learner led once, and has an entry that was never committed."""
    rig = ReplicaRig("abc")
    rig.active()
    rig.propose("a", put("k"))
    rig.play(drop=lambda *_: True)
    rig.place(2, "b", "ca", of="b")
    rig.play()
    rig.place(2, "b", "ca")
    rig.play()
    turn, end = rig["b"].ownership_generation, rig["b"].log.end
    assert rig["b"].role is Role.ACTIVE
    assert rig["a"].log.end > end
    rig.place(3, "ba", "c")
    rig.play()
    assert rig["b"].role is Role.ACTIVE
    assert (rig["b"].ownership_generation, rig["b"].log.end) == (turn, end)


def _data(name: str) -> bytes:
    return encode(put(name))
