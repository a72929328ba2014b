"""A new primary takes over a partition, message by message: log, members, ownership."""

from __future__ import annotations

from weft.dht.log import Changes, encode
from weft.dht.messages import (
    AppendEntries,
    EntriesAppended,
    Entry,
    Fetch,
    Need,
    Seal,
    SealReply,
)
from weft.dht.replica import Replica
from weft.dht.role import Role
from weft.persistence import layout

from .replica_rig import ReplicaRig, put

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


def _joined_by_a_former_primary(rig: ReplicaRig) -> Replica:
    """b leads b and c, without an entry of its own; a is level, with one entry more.

    a led before, and appended the entry when no other node could receive it: the entry was never
    committed.
    """
    rig.active("ab", "c")
    rig.propose("a", put("k", b"committed"))
    rig.play()
    rig.propose("a", put("k", b"never committed"))
    rig.in_flight.clear()
    rig.place(2, "bc", "a", of="bc")
    rig.play()
    rig.place(2, "bc", "a", of="a")
    rig.remind("b")
    rig.play()
    assert rig["b"].role is Role.ACTIVE
    assert rig["b"].primary.want_grow("a")
    assert rig["a"].log.end == rig["b"].log.end + 1
    return rig["b"]


def test_a_primary_that_its_own_next_epoch_has_fenced_keeps_its_log() -> None:
    """The other members may learn the next view first, and refuse the primary's messages."""
    rig = ReplicaRig("abc")
    primary = _joined_by_a_former_primary(rig)
    turn = primary.ownership_generation
    rig.place(3, "bca", of="ac")
    primary.log_sync.ship("c", even_empty=True)
    rig.end("b")
    rig.play()
    assert primary.role is Role.IDLE, "the others answered FENCED"
    rig.place(3, "bca", of="b")
    rig.play()
    assert rig["b"].role is Role.ACTIVE
    assert primary.ownership_generation == turn, "its leases have ended"


def test_a_primary_that_is_named_again_before_it_is_active_keeps_its_log() -> None:
    rig = ReplicaRig("abc")
    primary = _joined_by_a_former_primary(rig)
    turn = primary.ownership_generation
    rig.place(3, "bca")
    assert primary.role is Role.SEALING
    rig.in_flight.clear()
    rig.place(4, "ba")
    rig.play()
    assert rig["b"].role is Role.ACTIVE
    assert primary.ownership_generation == turn, "its leases have ended"


def test_a_primary_that_has_missed_an_epoch_takes_the_most_advanced_log() -> None:
    """Another node may have led in the epoch between, and may have committed entries."""
    rig = ReplicaRig("abc")
    primary = _joined_by_a_former_primary(rig)
    turn = primary.ownership_generation
    rig.place(4, "bca")
    rig.play()
    assert primary.role is Role.ACTIVE
    assert primary.ownership_generation > turn


def test_a_primary_that_another_node_has_led_since_takes_the_most_advanced_log() -> None:
    rig = ReplicaRig("abc")
    primary = _joined_by_a_former_primary(rig)
    turn = primary.ownership_generation
    rig.place(3, "cb")
    rig.play()
    rig.propose("c", put("k", b"of another primary"))
    rig.play()
    rig.place(4, "bc")
    rig.play()
    assert primary.role is Role.ACTIVE
    assert primary.ownership_generation > turn


def _data(name: str) -> bytes:
    return encode(put(name))
