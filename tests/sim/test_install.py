"""Snapshot transfer to a learner: pieces, losses, restarts in between."""

from __future__ import annotations

import random

import pytest

from weft.dht import snapshot_transfer
from weft.dht.messages import AnyMessage, EntriesAppended, Install, Installed
from weft.dht.planted_bugs import PlantedBugs

from .replica_rig import ReplicaRig, put

KEYS = 40


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_transfer, "PIECE_BYTES", 200)


def _far_behind(planted_bugs: PlantedBugs | None = None) -> ReplicaRig:
    """`a` and `b` hold many values and a trimmed log: the new learner `c` needs a snapshot."""
    rig = ReplicaRig("abc", planted_bugs)
    rig.active("ab")
    for number in range(KEYS):
        rig.propose("a", put(f"k{number:02}", b"x" * 20))
    for _ in range(3):
        rig.play()
        rig.remind("a")
    assert rig["a"].log.base == KEYS
    return rig


def _same(rig: ReplicaRig) -> None:
    assert rig.players["c"].state() == rig.players["a"].state()
    assert len(rig.players["c"].state()) >= KEYS


def test_a_learner_gets_the_whole_state_in_pieces_and_then_the_log() -> None:
    rig = _far_behind()
    pieces: list[Install] = []

    def count(_: str, __: str, message: AnyMessage) -> bool:
        pieces.extend([message] if isinstance(message, Install) else [])
        return False

    rig.place(1, "ab", "c")
    rig.play(drop=count)
    assert len(pieces) > 5
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    _same(rig)
    rig.propose("a", put("later"))
    rig.play()
    rig.remind("a")
    rig.play()
    _same(rig)


def test_pieces_and_answers_that_are_lost_are_sent_again() -> None:
    rng = random.Random(5)

    def lossy(_: str, __: str, message: AnyMessage) -> bool:
        return isinstance(message, Install | Installed) and rng.random() < 0.5

    rig = _far_behind()
    rig.place(1, "ab", "c")
    for _ in range(200):
        rig.play(drop=lossy)
        rig.remind("a")
    rig.play()
    assert rig["c"].log.base == KEYS
    _same(rig)


def test_pieces_that_come_twice_and_late_change_nothing() -> None:
    rig = _far_behind()
    kept: list[tuple[str, str, AnyMessage]] = []

    def keep(sender: str, to: str, message: AnyMessage) -> bool:
        kept.append((sender, to, message))
        return False

    rig.place(1, "ab", "c")
    rig.play(drop=keep)
    rig.propose("a", put("later"))
    rig.play()
    installs = [each for each in kept if isinstance(each[2], Install)]
    for sender, to, message in reversed(installs):
        rig.hear(sender, to, message)
        assert isinstance(rig.in_flight[-1][2], EntriesAppended), "it has all of it already"
    rig.remind("a")
    rig.play()
    _same(rig)


def test_a_learner_that_restarts_in_the_middle_begins_again() -> None:
    rig = _far_behind()
    rig.place(1, "ab", "c")
    rig.play(drop=lambda _, __, message: isinstance(message, Install) and message.number > 3)
    assert 0 < len(rig.players["c"].state()) < KEYS
    rig.restart("c")
    assert not rig["c"].empty  # c knows that its state is incomplete
    assert rig["c"].log.end == 0
    rig.place(1, "ab", "c", of="c")
    for _ in range(10):
        rig.remind("a")
        rig.play()
    _same(rig)


def test_a_late_copy_of_the_first_piece_does_not_begin_again() -> None:
    rig = _far_behind()
    kept: list[AnyMessage] = []

    def keep(_: str, __: str, message: AnyMessage) -> bool:
        first = isinstance(message, Install) and message.number == 0
        kept.extend([message] if first else [])
        return isinstance(message, Install) and message.number > 3

    rig.place(1, "ab", "c")
    rig.play(drop=keep)
    held = len(rig.players["c"].state())
    rig.hear("a", "c", kept[0])
    assert len(rig.players["c"].state()) == held
    rig.remind("a")
    rig.play()
    _same(rig)
    # Nor does an old piece wipe a complete state after the log has moved on and been trimmed.
    for number in range(5):
        rig.propose("a", put(f"later {number}"))
        rig.play()
        rig.remind("a")  # a learner gets the entries since the last ping
        rig.play()
    assert rig["c"].log.base > KEYS
    rig.hear("a", "c", kept[0])
    assert isinstance(rig.in_flight[-1][2], EntriesAppended)
    _same(rig)


def test_half_a_state_is_never_taken_for_a_whole_one() -> None:
    """The planted bug marks the state as complete too early; a restart trusts the mark."""
    for marks_early in (False, True):
        planted_bugs = PlantedBugs()
        planted_bugs.install_whole_early = marks_early
        rig = _far_behind(planted_bugs)
        rig.place(1, "ab", "c")
        rig.play(drop=lambda _, __, message: isinstance(message, Install) and message.number > 3)
        rig.restart("c")
        rig.place(1, "ab", "c", of="c")
        for _ in range(10):
            rig.remind("a")
            rig.play()
        level = rig["a"].primary.want_grow("c")
        same = rig.players["c"].state() == rig.players["a"].state()
        assert level
        assert same is not marks_early


def test_a_primary_that_changes_in_the_middle_starts_anew() -> None:
    rig = _far_behind()
    rig.place(1, "ab", "c")
    rig.play(drop=lambda _, __, message: isinstance(message, Install) and message.number > 3)
    rig.place(2, "ba", "c")
    for _ in range(5):
        rig.play()
        rig.remind("b")
    rig.propose("b", put("later"))
    for _ in range(5):
        rig.play()
        rig.remind("b")
    _same(rig)


def test_the_log_is_kept_from_where_a_state_was_taken_until_it_has_arrived() -> None:
    rig = _far_behind()
    rig.place(1, "ab", "c")
    rig.play(drop=lambda _, __, message: isinstance(message, Install) and message.number > 3)
    for number in range(30):
        rig.propose("a", put(f"meanwhile {number}"))
        rig.play(drop=lambda sender, to, _: "c" in (sender, to))
    assert rig["a"].log.base == KEYS
    for _ in range(60):
        rig.remind("a")
        rig.play()
    assert rig["c"].log.end == KEYS + 30
    _same(rig)
    rig.propose("a", put("k"))
    rig.play()
    assert rig["a"].log.base >= KEYS + 30


def test_a_learner_that_falls_silent_does_not_hold_the_log_for_ever() -> None:
    rig = _far_behind()
    rig.place(1, "ab", "c")
    rig.players["a"].dead.add("c")
    rig.remind("a")
    assert rig["a"].primary.transfer_count == 0
