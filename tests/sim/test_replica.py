"""One partition's replicas, message by message: fencing, commit, failover, growth, being alone."""

from __future__ import annotations

from weft.dht.log import Changes, encode
from weft.dht.messages import (
    AnyMessage,
    Append,
    Appended,
    Entry,
    Fenced,
    Fetch,
    Install,
    Need,
    Seal,
    Sealed,
)
from weft.dht.mutant import Mutant
from weft.dht.role import Role
from weft.dht.view import Place
from weft.persistence import layout

from .troupe import Troupe, put

# --- fencing ----------------------------------------------------------------------------------


def test_who_has_promised_more_is_not_moved_by_an_older_primary() -> None:
    troupe = Troupe("abc")
    troupe.hear("c", "b", Seal(0, 2))
    troupe.flying.clear()
    late: list[Entry] = [(1, 1, b"late", [])]
    older: list[AnyMessage] = [
        Seal(0, 1),
        Fetch(0, 1, 1),
        Append(0, 1, (0, 0), late, 0, 0),
        Install(0, 1, (1, 1), 0, [], True),
    ]
    for message in older:
        troupe.hear("a", "b", message)
        assert troupe.flying.pop() == ("b", "a", Fenced(0, 2))
        assert not troupe.flying
    assert troupe["b"].log.end == 0


def test_without_the_fence_it_would_be() -> None:
    mutant = Mutant()
    mutant.no_fence = True
    troupe = Troupe("abc", mutant)
    troupe.hear("c", "b", Seal(0, 2))
    troupe.hear("a", "b", Append(0, 1, (0, 0), [(1, 1, b"late", [])], 0, 0))
    assert troupe["b"].log.end == 1
    assert troupe.flying[-1] == ("b", "a", Appended(0, 1, 1))


def test_a_promise_is_kept_over_a_crash() -> None:
    troupe = Troupe("abc")
    troupe.hear("c", "b", Seal(0, 7))
    troupe.restart("b")
    assert troupe["b"].promised == 7
    troupe.hear("a", "b", Seal(0, 6))
    assert troupe.flying[-1] == ("b", "a", Fenced(0, 7))


def test_a_primary_that_is_fenced_leads_no_more() -> None:
    troupe = Troupe("ab")
    primary = troupe.active()
    lsn = troupe.propose("a", put("k"))
    troupe.hear("b", "a", Fenced(0, 2))
    assert primary.role is Role.IDLE
    troupe.play()
    assert primary.committed < lsn


# --- commit -----------------------------------------------------------------------------------


def test_an_entry_is_committed_when_every_member_has_it_and_nobody_else_counts() -> None:
    troupe = Troupe("abc")
    primary = troupe.active("abc")
    lsn = troupe.propose("a", put("k"))
    assert primary.committed < lsn
    troupe.hear("b", "a", Appended(0, 1, lsn))
    assert primary.committed < lsn
    troupe.hear("x", "a", Appended(0, 1, lsn))
    assert primary.committed < lsn
    troupe.hear("c", "a", Appended(0, 1, lsn))
    assert primary.committed == lsn


def test_a_learner_is_not_waited_for() -> None:
    troupe = Troupe("abc")
    primary = troupe.active("ab", "c")
    lsn = troupe.propose("a", put("k"))
    troupe.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert primary.committed == lsn
    assert troupe["c"].log.end < lsn


def test_below_min_sync_nothing_inherited_is_committed_and_nothing_is_served() -> None:
    troupe = Troupe("ab")
    primary = troupe.active()
    lsn = troupe.propose("a", put("k"))
    troupe.flying.clear()
    troupe.place(2, "a", "b", of="a")
    assert primary.role is Role.ACTIVE
    assert not primary.serving
    assert primary.committed < lsn <= primary.log.end


def test_what_is_committed_is_applied_by_all_and_then_dropped() -> None:
    troupe = Troupe("ab")
    troupe.active()
    for number in range(5):
        troupe.propose("a", put(f"k{number}"))
        troupe.play()
    troupe.remind("a")
    troupe.play()
    troupe.remind("a")
    troupe.play()
    assert len(troupe.players["a"].state()) == 5
    assert troupe.players["a"].state() == troupe.players["b"].state()
    assert troupe["a"].log.base == 5
    assert troupe["b"].log.base >= 3  # it hears of that with the next entries


def test_an_entry_that_a_follower_lacks_is_not_dropped() -> None:
    troupe = Troupe("abc")
    primary = troupe.active("ab", "c")
    for number in range(5):
        troupe.propose("a", put(f"k{number}"))
        troupe.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert primary.applied == 5
    assert primary.log.base == 0
    troupe.remind("a")
    troupe.remind("a")
    troupe.play()
    assert troupe["c"].log.end == 5
    assert troupe.players["c"].replaced_count == 0  # from the log: no state was sent


# --- a new primary ----------------------------------------------------------------------------


def test_a_fresh_process_leads_nothing() -> None:
    troupe = Troupe("ab")
    troupe.active()
    troupe.restart("a")
    assert troupe["a"].role is Role.IDLE


def test_a_new_primary_adopts_the_log_that_holds_most_and_levels_the_others() -> None:
    troupe = Troupe("abc")
    troupe.active("abc")
    troupe.propose("a", put("one"), put("two"))
    # Only b hears of them, and a dies.
    troupe.play(drop=lambda sender, to, _: "c" in (sender, to))
    lsn = troupe["b"].log.end
    assert troupe["c"].log.end < lsn
    troupe.place(2, "cb", of="bc")
    troupe.play()
    assert troupe["c"].role is Role.ACTIVE
    assert troupe["c"].committed == lsn
    assert troupe["c"].log.last == troupe["b"].log.last


def test_a_longer_log_of_an_older_epoch_is_cut_not_adopted() -> None:
    troupe = Troupe("abc")
    troupe.active("ab")
    troupe.propose("a", put("kept"))
    troupe.play()
    troupe.propose("a", put("x"), put("y"), put("z"))  # nobody hears: never acknowledged
    troupe.flying.clear()
    troupe.place(2, "b", "ac", of="bc", min_sync=1)
    troupe.play()
    troupe.propose("b", put("newer"))
    troupe.play()
    troupe.place(3, "ba", "c", of="abc")
    troupe.play()
    assert troupe["b"].role is Role.ACTIVE
    assert troupe["a"].log.lineage[-1] == troupe["b"].log.lineage[-1]
    troupe.remind("b")
    troupe.play()
    assert troupe.players["a"].state() == troupe.players["b"].state()
    assert len(troupe.players["a"].state()) == 2


def test_it_is_not_active_before_all_are_level() -> None:
    troupe = Troupe("ab")
    troupe.active()
    troupe.propose("a", put("one"))
    troupe.flying.clear()
    troupe.place(2, "ab")
    troupe.play(drop=lambda _, __, message: isinstance(message, Appended))
    assert not troupe["a"].serving
    assert troupe["a"].role is Role.COPYING
    troupe.remind("a")
    troupe.remind("a")
    troupe.play()
    assert troupe["a"].serving


def test_every_loss_is_made_good_by_saying_it_again() -> None:
    troupe = Troupe("ab")
    for number, lost in enumerate((Seal, Sealed, Append, Appended, Fetch)):
        troupe.place(number + 2, "ab" if number % 2 else "ba")
        seen: list[object] = []

        def first(_: str, __: str, message: object, kind: type = lost, s: list[object] = seen
                  ) -> bool:  # fmt: skip
            drops = isinstance(message, kind) and not s
            s += [message] * drops
            return drops

        leader = "a" if number % 2 else "b"
        for _ in range(4):
            troupe.play(drop=first)
            troupe.remind(leader)
        troupe.play()
        assert troupe[leader].role is Role.ACTIVE, lost
        troupe.propose(leader, put(f"k{number}"))
        troupe.play(drop=first)
        troupe.remind(leader)
        troupe.remind(leader)
        troupe.play()
        assert troupe[leader].committed == troupe[leader].log.end, lost


def test_a_follower_with_another_past_says_what_it_has_and_is_cut() -> None:
    troupe = Troupe("abc")
    mine: list[Entry] = [
        (1, 1, _data("x"), []),
        (2, 1, _data("never acknowledged"), []),
    ]
    troupe.hear("a", "b", Append(0, 1, (0, 0), mine, 0, 0))
    troupe.hear("c", "b", Append(0, 3, (2, 2), [(3, 3, _data("z"), [])], 0, 0))
    assert isinstance(troupe.flying[-1][2], Need)
    theirs: list[Entry] = [(2, 2, _data("y"), []), (3, 3, _data("z"), [])]
    troupe.hear("c", "b", Append(0, 3, (1, 1), theirs, 0, 0))
    assert troupe.flying[-1] == ("b", "c", Appended(0, 3, 3))
    assert troupe["b"].log.lineage == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_late_copy_of_an_append_cuts_nothing() -> None:
    troupe = Troupe("ab")
    first = Append(0, 1, (0, 0), [(1, 1, _data("x"), [])], 0, 0)
    troupe.hear("a", "b", first)
    troupe.hear("a", "b", Append(0, 1, (1, 1), [(2, 1, _data("y"), [])], 0, 0))
    troupe.hear("a", "b", first)
    assert troupe["b"].log.end == 2


def test_a_cut_takes_the_payloads_with_it() -> None:
    troupe = Troupe("abc")
    troupe.active("ab")
    body = layout.body(0, 1)
    troupe.propose("a", Changes([], [], [body]))
    troupe.flying.clear()
    assert troupe.players["a"].store.get(body) is not None
    troupe.place(2, "b", "a", of="b", min_sync=1)
    troupe.play()
    troupe.propose("b", put("newer"))
    troupe.place(3, "ba")
    troupe.play()
    assert troupe["b"].role is Role.ACTIVE
    assert troupe.players["a"].store.get(body) is None


# --- growth -----------------------------------------------------------------------------------


def test_a_pending_learner_is_waited_for_from_the_instant_it_is_pending() -> None:
    troupe = Troupe("abc")
    primary = troupe.active("ab", "c")
    assert primary.want_grow("c")
    lsn = troupe.propose("a", put("k"))
    troupe.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert primary.committed < lsn
    assert not primary.want_grow("c")  # not level
    troupe.remind("a")
    troupe.remind("a")
    troupe.play()
    assert primary.committed == lsn
    assert primary.want_grow("c")


def test_it_stays_pending_until_a_newer_epoch_is_learned() -> None:
    troupe = Troupe("abc")
    primary = troupe.active("ab", "c")
    assert primary.want_grow("c")
    troupe.players["a"].dead.add("c")
    assert not primary.want_grow("c")
    assert primary.pending == {"c"}  # nobody knows whether the view was changed meanwhile
    troupe.place(1, "ab", "c")
    assert primary.pending == {"c"}
    troupe.place(2, "ab", "c")
    assert primary.pending == set()


def test_who_dies_while_pending_is_not_waited_for_once_the_wish_is_decided() -> None:
    troupe = Troupe("abc")
    primary = troupe.active("ab", "c")
    assert primary.want_grow("c")
    lsn = troupe.propose("a", put("k"))
    troupe.play(drop=lambda sender, to, _: "c" in (sender, to))
    primary.wait_only_for("c")
    assert primary.committed < lsn
    primary.wait_only_for("")  # the register says no, and c is not there to be asked again
    assert primary.committed == lsn


def test_a_learner_that_is_far_behind_or_silent_does_not_become_pending() -> None:
    troupe = Troupe("abc")
    primary = troupe.active("ab", "c")
    for _ in range(70):
        troupe.propose("a", put("k"))
    troupe.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert not primary.want_grow("c")
    assert primary.pending == set()
    assert not primary.want_grow("d")


# --- alone ------------------------------------------------------------------------------------


def test_alone_the_state_is_written_at_once_and_no_log_is_kept() -> None:
    troupe = Troupe("a")
    primary = troupe.active("a", min_sync=1)
    lsn = troupe.propose("a", put("k"))
    assert primary.alone
    assert lsn == primary.committed == primary.log.end == 0
    assert len(troupe.players["a"].state()) == 1


def test_what_was_written_alone_has_a_number_of_its_own_once_somebody_follows() -> None:
    troupe = Troupe("ab")
    primary = troupe.active("a", min_sync=1)
    troupe.propose("a", put("k"))
    troupe.place(1, "a", "b", min_sync=1)
    assert primary.log.base == primary.log.end == 1
    troupe.play()
    assert troupe.players["b"].replaced_count == 1
    assert troupe.players["b"].state() == troupe.players["a"].state()


def test_who_followed_once_does_not_take_his_old_state_for_the_new_one() -> None:
    troupe = Troupe("ab")
    troupe.active("a", "b", min_sync=1)
    troupe.propose("a", put("one"))
    troupe.play()
    end = troupe["b"].log.end
    troupe.place(2, "a", of="a", min_sync=1)  # b has gone, and does not know it
    troupe.play()
    troupe.propose("a", put("two"))
    troupe.place(3, "a", "b", min_sync=1)
    assert troupe["a"].log.end > end
    troupe.play()
    assert troupe.players["b"].replaced_count >= 1
    assert troupe.players["b"].state() == troupe.players["a"].state()


def test_alone_the_log_comes_into_the_state_before_anything_is_written_without_one() -> None:
    troupe = Troupe("abc")
    troupe.active("ab", min_sync=1)
    troupe.propose("a", put("k", b"one"))
    troupe.play()
    last = troupe["b"]
    last.learn(Place(2, ("b",)), 1)  # a died, and has left: b is all there is
    assert last.alone
    assert last.applied < last.committed == last.log.end
    lsn = last.propose(put("k", b"two"), [])
    assert lsn == last.log.end, "an older entry would be written over it"
    last.learn(Place(2, ("b",), ("c",)), 1)  # somebody follows
    assert last.applied < last.log.end == lsn, "what was acknowledged is not passed over"
    troupe.end("b")
    troupe.play()
    (value,) = troupe.players["b"].state().values()
    assert value[8:] == b"two"


# --- whose memory holds -------------------------------------------------------------------------


def test_a_turn_lasts_as_long_as_nobody_else_may_have_changed_anything() -> None:
    troupe = Troupe("abc")
    primary = troupe.active("ab", "c")
    turn = primary.turn
    troupe.propose("a", put("k"))
    troupe.play()
    troupe.place(2, "ab", "c")  # a restart of b: a leads on
    troupe.play()
    assert primary.turn == turn
    troupe.place(3, "ba", "c")
    troupe.play()
    assert primary.turn > turn


def test_a_turn_ends_when_entries_of_others_are_taken_over() -> None:
    troupe = Troupe("ab")
    troupe.active()
    troupe.propose("a", put("k"))
    troupe.play()
    troupe.restart("a")
    turn = troupe["a"].turn
    troupe.place(2, "ba", of="b")
    troupe.play()
    troupe.propose("b", put("l"))
    troupe.play()
    troupe.place(3, "ab")
    troupe.play()
    assert troupe["a"].role is Role.ACTIVE
    assert troupe["a"].turn > turn


def _data(name: str) -> bytes:
    return encode(put(name))
